//! The client's side of SCRAM-SHA-256 and SCRAM-SHA-256-PLUS, towards PostgreSQL. One value per message
//! that may come next, each consumed by it:
//!
//! ```text
//! ClientFirst --server-first--> ClientFinalPending --credentials--> ServerVerify --server-final--> done
//! ```
//!
//! Between the middle two the password is derived, elsewhere. The rules are those of libpq's
//! `src/interfaces/libpq/fe-auth-scram.c`. Does not know passwords: only what is derived from them.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use subtle::ConstantTimeEq as _;

use super::error::AuthError;
use super::scram::{
    ChannelBinding, Key, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, SERVER_ITERATIONS_MAX, hmac_sha256, stored_key, xor,
};
use super::scram_message::{
    Attributes, BindingFlag, SERVER_MESSAGE_LENGTH_BYTES_MAX, auth_message, check_length, is_nonce,
};
use super::secret::{ScramKeys, decode_key, parse_iterations};

/// Sends client-first, and waits for server-first.
#[derive(Debug)]
pub struct ClientFirst {
    nonce: String,
    flag: BindingFlag,
    /// The value of `c=` in client-final.
    channel_binding: String,
    bare: String,
}

impl ClientFirst {
    /// Chooses SCRAM-SHA-256-PLUS where the server offers it and there is a binding. `user` goes into
    /// the message; PostgreSQL ignores it and libpq sends an empty one.
    pub fn new(
        user: &str,
        nonce: &str,
        offered_mechanisms: &[&str],
        binding: ChannelBinding,
    ) -> Result<Self, AuthError> {
        if !is_nonce(nonce.as_bytes()) {
            return Err(AuthError::UnusableNonce);
        }
        let flag = choose(offered_mechanisms, &binding)?;
        Ok(Self {
            nonce: nonce.to_owned(),
            flag,
            channel_binding: flag.channel_binding(&binding),
            bare: format!("n={},r={nonce}", saslname(user)),
        })
    }

    /// The name of the mechanism for SASLInitialResponse.
    pub fn mechanism(&self) -> &'static str {
        match self.flag {
            BindingFlag::TlsServerEndPoint => SCRAM_SHA_256_PLUS,
            BindingFlag::Unsupported | BindingFlag::NotOffered => SCRAM_SHA_256,
        }
    }

    /// client-first, the initial response of SASLInitialResponse.
    pub fn message(&self) -> Vec<u8> {
        format!("{}{}", self.flag.gs2_header(), self.bare).into_bytes()
    }

    /// Reads server-first, from AuthenticationSASLContinue.
    pub fn on_server_first(self, message: &[u8]) -> Result<ClientFinalPending, AuthError> {
        check_length(message, SERVER_MESSAGE_LENGTH_BYTES_MAX)?;
        let mut attributes = Attributes::new(message);
        let nonce = attributes.expect(b'r', "attribute r expected")?;
        let salt = attributes.expect(b's', "attribute s expected")?;
        let iterations = attributes.expect(b'i', "attribute i expected")?;
        if !attributes.is_at_end() {
            return Err(AuthError::Malformed("garbage at the end of server-first-message"));
        }
        let without_proof = self.client_final_without_proof(nonce)?;
        let salt = BASE64.decode(salt).ok().filter(|salt| !salt.is_empty());
        Ok(ClientFinalPending {
            salt: salt.ok_or(AuthError::Malformed("invalid salt in server-first-message"))?,
            iterations: read_iterations(iterations)?,
            signed: auth_message(self.bare.as_bytes(), message, &without_proof),
            without_proof,
        })
    }

    /// The server's nonce must begin with ours and add to it, else the exchange is somebody else's.
    fn client_final_without_proof(&self, nonce: &[u8]) -> Result<Vec<u8>, AuthError> {
        if !is_nonce(nonce) {
            return Err(AuthError::Malformed("non-printable characters in SCRAM nonce"));
        }
        match nonce.strip_prefix(self.nonce.as_bytes()) {
            None | Some([]) => Err(AuthError::NonceMismatch),
            Some(_) => Ok([b"c=", self.channel_binding.as_bytes(), b",r=", nonce].concat()),
        }
    }
}

/// With a binding but no offer of it we say `y`: a server that did offer it then knows that somebody
/// in between has changed the list.
fn choose(offered: &[&str], binding: &ChannelBinding) -> Result<BindingFlag, AuthError> {
    let plus = offered.contains(&SCRAM_SHA_256_PLUS);
    let plain = offered.contains(&SCRAM_SHA_256);
    match binding {
        ChannelBinding::TlsServerEndPoint(_) if plus => Ok(BindingFlag::TlsServerEndPoint),
        ChannelBinding::TlsServerEndPoint(_) if plain => Ok(BindingFlag::NotOffered),
        ChannelBinding::None if plain => Ok(BindingFlag::Unsupported),
        _ => Err(AuthError::NoCommonMechanism),
    }
}

/// RFC 5802 section 5.1: comma and equals sign are written as =2C and =3D.
fn saslname(user: &str) -> String {
    user.replace('=', "=3D").replace(',', "=2C")
}

fn read_iterations(digits: &[u8]) -> Result<u32, AuthError> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(AuthError::Malformed("invalid iteration count in server-first-message"));
    }
    parse_iterations(digits)
        .filter(|&iterations| iterations <= SERVER_ITERATIONS_MAX)
        .ok_or(AuthError::IterationsOutOfBounds)
}

/// Knows what is to be derived: `salted_password(password, &salt, iterations)`, or keys that were
/// derived with the same two.
#[derive(Debug)]
pub struct ClientFinalPending {
    /// The server's salt for this user.
    pub salt: Vec<u8>,
    /// The server's iteration count for this user, from 1 to [`SERVER_ITERATIONS_MAX`].
    pub iterations: u32,
    without_proof: Vec<u8>,
    signed: Vec<u8>,
}

/// What proves that we are the user.
#[derive(Clone)]
pub enum Credentials {
    /// The derived password.
    Salted([u8; 32]),
    /// The keys that a client's own login left with us (pass-through). They fit only where salt and
    /// iteration count are those of the client's verifier.
    Keys(ScramKeys),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Salted(_) => "Credentials(salted)",
            Self::Keys(_) => "Credentials(keys)",
        })
    }
}

impl ClientFinalPending {
    /// client-final for SASLResponse, and what the server must answer.
    pub fn finish_with(self, credentials: Credentials) -> (Vec<u8>, ServerVerify) {
        let keys = match credentials {
            Credentials::Salted(salted) => ScramKeys::from_salted(&salted),
            Credentials::Keys(keys) => keys,
        };
        let client_signature = hmac_sha256(&stored_key(&keys.client_key), &[&self.signed]);
        let proof = BASE64.encode(xor(keys.client_key, client_signature));
        let message = [&self.without_proof[..], b",p=", proof.as_bytes()].concat();
        let signature = hmac_sha256(&keys.server_key, &[&self.signed]);
        (message, ServerVerify { signature })
    }
}

/// Waits for server-final, from AuthenticationSASLFinal. AuthenticationOk before it is to be refused:
/// until then the server has not shown that it knows the password.
pub struct ServerVerify {
    signature: Key,
}

impl ServerVerify {
    /// Verifies the server's signature.
    pub fn on_server_final(self, message: &[u8]) -> Result<(), AuthError> {
        check_length(message, SERVER_MESSAGE_LENGTH_BYTES_MAX)?;
        let mut attributes = Attributes::new(message);
        let signature = match attributes.next()? {
            (b'v', signature) => signature,
            (b'e', _) => return Err(AuthError::ServerRefused),
            _ => return Err(AuthError::Malformed("attribute v expected")),
        };
        if !attributes.is_at_end() {
            return Err(AuthError::Malformed("garbage at the end of server-final-message"));
        }
        let signature = decode_key(signature).ok_or(AuthError::Malformed("malformed server signature"))?;
        if signature.ct_eq(&self.signature).into() { Ok(()) } else { Err(AuthError::WrongServerSignature) }
    }
}

impl fmt::Debug for ServerVerify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerVerify(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::super::scram::salted_password;
    use super::*;

    // RFC 7677 section 3.
    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const SERVER_FIRST: &str = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
        s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const CLIENT_FINAL: &[u8] = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    const SERVER_FINAL: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    fn client() -> ClientFirst {
        ClientFirst::new("user", NONCE, &[SCRAM_SHA_256], ChannelBinding::None).unwrap()
    }

    /// Derived once for all tests.
    fn salted() -> [u8; 32] {
        static SALTED: std::sync::OnceLock<[u8; 32]> = std::sync::OnceLock::new();
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        *SALTED.get_or_init(|| salted_password("pencil", &salt, 4096))
    }

    fn verify() -> ServerVerify {
        let pending = client().on_server_first(SERVER_FIRST.as_bytes()).unwrap();
        pending.finish_with(Credentials::Salted(salted())).1
    }

    fn first_error(message: impl AsRef<[u8]>) -> AuthError {
        client().on_server_first(message.as_ref()).expect_err("the message must be refused")
    }

    #[test]
    fn exchange_of_rfc_7677_with_either_credential() {
        let keys = ScramKeys::from_salted(&salted());
        for credentials in [Credentials::Salted(salted()), Credentials::Keys(keys)] {
            let client = client();
            assert_eq!(client.mechanism(), "SCRAM-SHA-256");
            assert_eq!(client.message(), b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
            let pending = client.on_server_first(SERVER_FIRST.as_bytes()).unwrap();
            assert_eq!((pending.salt.len(), pending.iterations), (16, 4096));
            let (client_final, verify) = pending.finish_with(credentials);
            assert_eq!(client_final, CLIENT_FINAL);
            assert_eq!(verify.on_server_final(SERVER_FINAL.as_bytes()), Ok(()));
        }
    }

    #[test]
    fn mechanism_is_chosen_by_offer_and_binding() {
        let binding = || ChannelBinding::TlsServerEndPoint(b"hash".to_vec());
        let both = [SCRAM_SHA_256_PLUS, SCRAM_SHA_256];
        for (offered, binding, mechanism, message) in [
            (&both[..], binding(), SCRAM_SHA_256_PLUS, "p=tls-server-end-point,,n=,r=a"),
            (&both[..1], binding(), SCRAM_SHA_256_PLUS, "p=tls-server-end-point,,n=,r=a"),
            (&both[1..], binding(), SCRAM_SHA_256, "y,,n=,r=a"),
            (&both[..], ChannelBinding::None, SCRAM_SHA_256, "n,,n=,r=a"),
        ] {
            let client = ClientFirst::new("", "a", offered, binding).unwrap();
            assert_eq!(client.mechanism(), mechanism);
            assert_eq!(client.message(), message.as_bytes());
        }
        for (offered, binding) in [
            (&both[..1], ChannelBinding::None),
            (&[], ChannelBinding::None),
            (&[], binding()),
            (&["SCRAM-SHA-1", "OAUTHBEARER"], binding()),
        ] {
            let result = ClientFirst::new("", "a", offered, binding);
            assert_eq!(result.map(|_| ()), Err(AuthError::NoCommonMechanism));
        }
    }

    #[test]
    fn names_are_escaped_and_nonces_checked() {
        let client = ClientFirst::new("a=b,c", "x", &[SCRAM_SHA_256], ChannelBinding::None).unwrap();
        assert_eq!(client.message(), b"n,,n=a=3Db=2Cc,r=x");
        for nonce in ["", "a,b", "a b", "\u{e4}"] {
            let result = ClientFirst::new("", nonce, &[SCRAM_SHA_256], ChannelBinding::None);
            assert_eq!(result.map(|_| ()), Err(AuthError::UnusableNonce));
        }
    }

    #[test]
    fn malformed_server_first() {
        let cut = |text: &str| SERVER_FIRST.replace(text, "");
        for message in [
            String::new(),
            cut(",i=4096"),
            cut("4096"),
            cut("W22ZaJ0SNY7soEsUEjb6gQ=="),
            cut(",s=W22ZaJ0SNY7soEsUEjb6gQ=="),
            cut("=="),
            format!("{SERVER_FIRST},"),
            format!("{SERVER_FIRST},x=1"),
            format!("{SERVER_FIRST}x"),
            format!("{SERVER_FIRST}\0"),
            SERVER_FIRST.replace("4096", "-1"),
            SERVER_FIRST.replace("4096", "+1"),
            SERVER_FIRST.replace("4096", " 1"),
            SERVER_FIRST.replace("k0", "k\u{e4}"),
            SERVER_FIRST.replace("k0", "k 0"),
            SERVER_FIRST.replace("r=", "x="),
            "e=other-error".to_owned(),
        ] {
            let error = first_error(&message);
            assert!(matches!(error, AuthError::Malformed(_)), "{message}: {error:?}");
        }
        assert_eq!(first_error(format!("m=x,{SERVER_FIRST}")), AuthError::MandatoryExtension);
        assert_eq!(first_error("r".repeat(2001)), AuthError::MessageTooLong);
    }

    #[test]
    fn nonce_must_be_ours_and_more() {
        let server_part = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        for message in [
            SERVER_FIRST.replace("rOpr", "rOps"),
            SERVER_FIRST.replace(server_part, ""),
            SERVER_FIRST.replace(NONCE, ""),
        ] {
            assert_eq!(first_error(message), AuthError::NonceMismatch);
        }
    }

    #[test]
    fn iterations_have_bounds() {
        let with = |count: &str| {
            let message = SERVER_FIRST.replace("4096", count);
            let pending = client().on_server_first(message.as_bytes());
            pending.map(|pending| pending.iterations)
        };
        assert_eq!(with("1"), Ok(1));
        assert_eq!(with("1000000"), Ok(SERVER_ITERATIONS_MAX));
        for count in ["0", "1000001", "2147483648", "99999999999999999999"] {
            assert_eq!(with(count), Err(AuthError::IterationsOutOfBounds), "{count}");
        }
    }

    #[test]
    fn server_must_know_the_password_too() {
        let wrong = SERVER_FINAL.replace("6rri", "7rri");
        let result = verify().on_server_final(wrong.as_bytes());
        assert_eq!(result, Err(AuthError::WrongServerSignature));
        let result = verify().on_server_final(b"e=invalid-proof");
        assert_eq!(result, Err(AuthError::ServerRefused));
        for message in [
            String::new(),
            "v".to_owned(),
            "v=".to_owned(),
            "v=AAAA".to_owned(),
            "x=1".to_owned(),
            format!("{SERVER_FINAL},x=1"),
            format!("{SERVER_FINAL}="),
            format!("{SERVER_FINAL}\0"),
        ] {
            let error = verify().on_server_final(message.as_bytes()).unwrap_err();
            assert!(matches!(error, AuthError::Malformed(_)), "{message}: {error:?}");
        }
    }

    #[test]
    fn debug_shows_no_key() {
        let keys = ScramKeys::from_salted(&salted());
        assert_eq!(format!("{:?}", Credentials::Salted(salted())), "Credentials(salted)");
        assert_eq!(format!("{:#?}", Credentials::Keys(keys)), "Credentials(keys)");
        assert_eq!(format!("{:?}", verify()), "ServerVerify(hidden)");
    }

    #[test]
    fn damaged_messages_never_panic_nor_pass() {
        use super::super::testing::for_each_mutation;
        for_each_mutation(SERVER_FIRST.as_bytes(), 5_000, |damaged| {
            if let Ok(pending) = client().on_server_first(damaged) {
                assert!((1..=SERVER_ITERATIONS_MAX).contains(&pending.iterations));
                assert!(!pending.salt.is_empty());
            }
        });
        for_each_mutation(SERVER_FINAL.as_bytes(), 5_000, |damaged| {
            let passed = verify().on_server_final(damaged).is_ok();
            assert_eq!(passed, damaged == SERVER_FINAL.as_bytes());
        });
    }
}
