//! The syntax of SCRAM messages (RFC 5802 section 7): attributes, nonces, the GS2 header, and the text
//! that both sides sign. Works on bytes, since nothing says that a peer sends UTF-8.
//!
//! Does not know whose turn it is, nor any key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::error::AuthError;
use super::scram::ChannelBinding;

/// Longest SASL message of a client: PG_MAX_SASL_MESSAGE_LENGTH in PostgreSQL's
/// `src/backend/libpq/auth-sasl.c`.
pub(super) const CLIENT_MESSAGE_LENGTH_BYTES_MAX: usize = 1024;
/// Longest SASL message of a server: what libpq takes as an authentication request
/// (`src/interfaces/libpq/fe-connect.c`).
pub(super) const SERVER_MESSAGE_LENGTH_BYTES_MAX: usize = 2000;

/// Refuses what PostgreSQL refuses before looking at any attribute.
pub(super) fn check_length(message: &[u8], length_bytes_max: usize) -> Result<(), AuthError> {
    if message.is_empty() {
        return Err(AuthError::Malformed("empty message"));
    }
    if message.len() > length_bytes_max {
        return Err(AuthError::MessageTooLong);
    }
    if message.contains(&0) {
        return Err(AuthError::Malformed("length mismatch"));
    }
    Ok(())
}

/// A nonce is not empty and consists of `printable`: visible ASCII but for the comma.
pub(super) fn is_nonce(nonce: &[u8]) -> bool {
    !nonce.is_empty() && nonce.iter().all(|byte| byte.is_ascii_graphic() && *byte != b',')
}

/// Reads `attr-val *("," attr-val)` from the left.
pub(super) struct Attributes<'a> {
    /// What follows the last comma read; none behind the last attribute.
    rest: Option<&'a [u8]>,
}

impl<'a> Attributes<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self { rest: Some(message) }
    }

    /// The next attribute, whatever it is called.
    pub(super) fn next(&mut self) -> Result<(u8, &'a [u8]), AuthError> {
        let Some(rest) = self.rest else {
            return Err(AuthError::Malformed("attribute expected, end found"));
        };
        let (attribute, rest) = match rest.iter().position(|&byte| byte == b',') {
            Some(comma) => (&rest[..comma], Some(&rest[comma + 1..])),
            None => (rest, None),
        };
        match attribute {
            [name, b'=', value @ ..] if name.is_ascii_alphabetic() => {
                self.rest = rest;
                // No mandatory extension is defined, so every one is unknown.
                if *name == b'm' {
                    return Err(AuthError::MandatoryExtension);
                }
                Ok((*name, value))
            }
            [name, ..] if name.is_ascii_alphabetic() => Err(AuthError::Malformed("expected = in attribute")),
            _ => Err(AuthError::Malformed("attribute expected")),
        }
    }

    /// The value of the next attribute, which must be called `name`.
    pub(super) fn expect(&mut self, name: u8, otherwise: &'static str) -> Result<&'a [u8], AuthError> {
        match self.next()? {
            (found, value) if found == name => Ok(value),
            _ => Err(AuthError::Malformed(otherwise)),
        }
    }

    /// How many bytes are not read yet.
    pub(super) fn length_left_bytes(&self) -> usize {
        self.rest.map_or(0, <[u8]>::len)
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_none()
    }
}

/// What a client says about channel binding: gs2-cbind-flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BindingFlag {
    /// `n`: the client does not support it.
    Unsupported,
    /// `y`: the client supports it and believes that the server does not.
    NotOffered,
    /// `p=tls-server-end-point`: the client uses it.
    TlsServerEndPoint,
}

impl BindingFlag {
    /// The GS2 header without an authorization identity.
    pub(super) fn gs2_header(self) -> &'static str {
        match self {
            Self::Unsupported => "n,,",
            Self::NotOffered => "y,,",
            Self::TlsServerEndPoint => "p=tls-server-end-point,,",
        }
    }

    /// The value of `c=`: base64 of the header and, when it is used, the binding data.
    pub(super) fn channel_binding(self, binding: &ChannelBinding) -> String {
        let mut input = self.gs2_header().as_bytes().to_vec();
        if let (Self::TlsServerEndPoint, ChannelBinding::TlsServerEndPoint(data)) = (self, binding) {
            input.extend_from_slice(data);
        }
        BASE64.encode(input)
    }
}

/// Splits client-first into its gs2-cbind-flag and client-first-message-bare.
pub(super) fn split_client_first(message: &[u8]) -> Result<(BindingFlag, &[u8]), AuthError> {
    let (flag, rest) = match message {
        [b'n', rest @ ..] => (BindingFlag::Unsupported, rest),
        [b'y', rest @ ..] => (BindingFlag::NotOffered, rest),
        [b'p', b'=', rest @ ..] => (BindingFlag::TlsServerEndPoint, binding_type(rest)?),
        [b'p', ..] => return Err(AuthError::Malformed("expected = in attribute")),
        _ => return Err(AuthError::Malformed("unexpected channel-binding flag")),
    };
    match rest {
        [b',', b',', bare @ ..] => Ok((flag, bare)),
        [b',', b'a', ..] => Err(AuthError::AuthorizationIdentityUnsupported),
        [b',', ..] => Err(AuthError::Malformed("unexpected attribute in client-first-message")),
        _ => Err(AuthError::Malformed("comma expected")),
    }
}

/// Takes the only type that PostgreSQL supports off the front.
fn binding_type(text: &[u8]) -> Result<&[u8], AuthError> {
    let end = text.iter().position(|&byte| byte == b',').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if name == b"tls-server-end-point" { Ok(rest) } else { Err(AuthError::BindingTypeUnsupported) }
}

/// AuthMessage: what proof and server signature are made of.
pub(super) fn auth_message(client_first_bare: &[u8], server_first: &[u8], client_final: &[u8]) -> Vec<u8> {
    [client_first_bare, server_first, client_final].join(&b',')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_from_the_left() {
        let mut attributes = Attributes::new(b"n=,r=a=b,x=");
        assert_eq!(attributes.expect(b'n', "n"), Ok(&b""[..]));
        assert_eq!(attributes.length_left_bytes(), 8);
        assert_eq!(attributes.next(), Ok((b'r', &b"a=b"[..])));
        assert!(!attributes.is_at_end());
        assert_eq!(attributes.next(), Ok((b'x', &b""[..])));
        assert!(attributes.is_at_end());
        assert!(attributes.next().is_err());
    }

    #[test]
    fn malformed_attributes_are_errors() {
        for message in ["", ",", "n", "n,", "=x", "1=x", "\u{e4}=x", " n=x", "nn=x"] {
            let result = Attributes::new(message.as_bytes()).next();
            assert!(matches!(result, Err(AuthError::Malformed(_))), "{message}: {result:?}");
        }
        let mut trailing = Attributes::new(b"n=x,");
        assert!(trailing.next().is_ok());
        assert!(!trailing.is_at_end());
        assert!(trailing.next().is_err());
        assert_eq!(Attributes::new(b"m=x").next(), Err(AuthError::MandatoryExtension));
        assert_eq!(Attributes::new(b"s=x").expect(b'n', "n expected"), Err(AuthError::Malformed("n expected")));
    }

    #[test]
    fn client_first_is_split_behind_its_header() {
        let split = |message: &'static str| split_client_first(message.as_bytes());
        assert_eq!(split("n,,n="), Ok((BindingFlag::Unsupported, &b"n="[..])));
        assert_eq!(split("y,,"), Ok((BindingFlag::NotOffered, &b""[..])));
        assert_eq!(split("p=tls-server-end-point,,n="), Ok((BindingFlag::TlsServerEndPoint, &b"n="[..])));
        assert_eq!(split("n,a=x,n="), Err(AuthError::AuthorizationIdentityUnsupported));
        for other in ["p=tls-unique,,n=", "p=,,n=", "p=tls-server-end-point2,,", "p="] {
            assert_eq!(split(other), Err(AuthError::BindingTypeUnsupported), "{other}");
        }
        for malformed in ["", "x,,", "n", "n,", "nn,,", "n,x,", "p,,", "p=tls-server-end-point", ",,"] {
            assert!(matches!(split(malformed), Err(AuthError::Malformed(_))), "{malformed}");
        }
    }

    #[test]
    fn lengths_are_checked_first() {
        assert_eq!(check_length(b"12", 2), Ok(()));
        assert_eq!(check_length(b"123", 2), Err(AuthError::MessageTooLong));
        assert_eq!(check_length(b"", 2), Err(AuthError::Malformed("empty message")));
        assert_eq!(check_length(b"a\0", 2), Err(AuthError::Malformed("length mismatch")));
    }

    #[test]
    fn nonces_are_printable_ascii_without_comma() {
        assert!(is_nonce(b"!~=+/Az09"));
        for nonce in [&b""[..], b"a,b", b"a b", b"a\x7f", b"\xe4", b"\n"] {
            assert!(!is_nonce(nonce), "{nonce:?}");
        }
    }

    #[test]
    fn binding_is_the_header_and_the_data_when_used() {
        let binding = ChannelBinding::TlsServerEndPoint(b"hash".to_vec());
        assert_eq!(BindingFlag::Unsupported.channel_binding(&ChannelBinding::None), "biws");
        assert_eq!(BindingFlag::Unsupported.channel_binding(&binding), "biws");
        assert_eq!(BindingFlag::NotOffered.channel_binding(&binding), "eSws");
        assert_eq!(
            BASE64.decode(BindingFlag::TlsServerEndPoint.channel_binding(&binding)).unwrap(),
            b"p=tls-server-end-point,,hash"
        );
    }
}
