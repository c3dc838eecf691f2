//! Why an authentication exchange ended. Owns the sentences; carries no byte that a peer sent and no
//! secret, so that every value may be logged.
//!
//! Does not know SQLSTATEs or log levels: core's table of errors maps these.

use std::fmt;

use super::scram::SERVER_ITERATIONS_MAX;

/// Why an exchange cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthError {
    /// A SCRAM message that does not follow RFC 5802 section 7; says which rule it breaks.
    Malformed(&'static str),
    /// Longer than PostgreSQL takes at this point of the exchange.
    MessageTooLong,
    /// The client chose a mechanism that was not offered.
    MechanismNotOffered,
    /// The client chose SCRAM-SHA-256-PLUS, and its message carries no channel binding.
    BindingMissing,
    /// The client chose SCRAM-SHA-256, and its message asks for channel binding.
    BindingUnexpected,
    /// A channel binding type other than tls-server-end-point.
    BindingTypeUnsupported,
    /// The client was made to believe that channel binding is not offered.
    BindingDowngraded,
    /// The channel binding of client-final is not that of this connection.
    BindingMismatch,
    /// The client asks to act as somebody else (`a=`).
    AuthorizationIdentityUnsupported,
    /// The peer requires an extension (`m=`); there is none that we know.
    MandatoryExtension,
    /// The nonce is not the one of this exchange.
    NonceMismatch,
    /// The proof does not fit: a wrong password, or an unknown user.
    WrongProof,
    /// The server offers no mechanism that we speak.
    NoCommonMechanism,
    /// The server asks for an iteration count outside of what we are ready to compute.
    IterationsOutOfBounds,
    /// The server ended the exchange with `e=`.
    ServerRefused,
    /// The server does not know the password: it is not the server it claims to be.
    WrongServerSignature,
    /// The nonce that our own side was given is empty or not printable.
    UnusableNonce,
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed(rule) => return write!(f, "malformed SCRAM message ({rule})"),
            Self::MessageTooLong => "SASL message is too long",
            Self::MechanismNotOffered => "client selected an invalid SASL authentication mechanism",
            Self::BindingMissing => {
                "the client selected SCRAM-SHA-256-PLUS, but the SCRAM message does not include \
                 channel binding data"
            }
            Self::BindingUnexpected => {
                "the client selected SCRAM-SHA-256 without channel binding, but the SCRAM message \
                 includes channel binding data"
            }
            Self::BindingTypeUnsupported => "unsupported SCRAM channel-binding type",
            Self::BindingDowngraded => {
                "SCRAM channel binding negotiation error: the client supports SCRAM channel \
                 binding but thinks the server does not, however this server does support it"
            }
            Self::BindingMismatch => "SCRAM channel binding check failed",
            Self::AuthorizationIdentityUnsupported => "client uses authorization identity, but it is not supported",
            Self::MandatoryExtension => "peer requires an unsupported SCRAM extension",
            Self::NonceMismatch => "invalid SCRAM response (nonce mismatch)",
            Self::WrongProof => "password authentication failed",
            Self::NoCommonMechanism => "none of the server's SASL authentication mechanisms are supported",
            Self::IterationsOutOfBounds => {
                return write!(
                    f,
                    "server asks for an unacceptable SCRAM iteration count (1 to {SERVER_ITERATIONS_MAX} are)"
                );
            }
            Self::ServerRefused => "server reported an error in the SCRAM exchange",
            Self::WrongServerSignature => "incorrect SCRAM server signature",
            Self::UnusableNonce => "the SCRAM nonce must be printable and not empty",
        })
    }
}

impl std::error::Error for AuthError {}

#[cfg(test)]
mod tests {
    use super::AuthError;

    #[test]
    fn sentences_say_which_rule_was_broken() {
        assert_eq!(AuthError::Malformed("comma expected").to_string(), "malformed SCRAM message (comma expected)");
        assert_eq!(AuthError::NonceMismatch.to_string(), "invalid SCRAM response (nonce mismatch)");
    }
}
