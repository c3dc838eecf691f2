//! The server's side of SCRAM-SHA-256 and SCRAM-SHA-256-PLUS, towards clients. One struct per message
//! that may come next, each consumed by it:
//!
//! ```text
//! ServerFirst --client-first / server-first--> ServerFinal --client-final / server-final--> ScramKeys
//! ```
//!
//! The rules are those of PostgreSQL's `src/backend/libpq/auth-scram.c`. Does not know users: for one
//! that does not exist it is given [`mock_verifier`], and must not notice the difference.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use subtle::ConstantTimeEq as _;

use super::error::AuthError;
use super::scram::{ChannelBinding, Key, SCRAM_SHA_256_PLUS, hmac_sha256, stored_key, xor};
use super::scram_message::{
    Attributes, BindingFlag, CLIENT_MESSAGE_LENGTH_BYTES_MAX, auth_message, check_length, is_nonce, split_client_first,
};
use super::secret::{ScramKeys, ScramVerifier, decode_key};

/// Length of the salts that PostgreSQL makes: SCRAM_DEFAULT_SALT_LEN.
pub const SALT_LENGTH_BYTES: usize = 16;

/// A verifier for a user that does not exist, or that has no SCRAM secret. Every question gets the
/// same salt, as if one were stored, and nobody can compute a proof that fits: StoredKey is no hash of
/// anything known. `process_secret` is random and lives as long as the process, like PostgreSQL's
/// mock authentication nonce (`scram_mock_salt`).
pub fn mock_verifier(user: &str, process_secret: &[u8; 32], iterations: u32) -> ScramVerifier {
    ScramVerifier {
        iterations,
        salt: mock_salt(user, process_secret, SALT_LENGTH_BYTES),
        stored_key: of_name(b"StoredKey", user, process_secret),
        server_key: of_name(b"ServerKey", user, process_secret),
    }
}

/// A salt that a name has for as long as the process lives.
pub fn mock_salt(user: &str, process_secret: &[u8; 32], length_bytes: usize) -> Vec<u8> {
    let mut salt = of_name(b"salt", user, process_secret).to_vec();
    while salt.len() < length_bytes {
        salt.extend(hmac_sha256(process_secret, &[&salt, user.as_bytes()]));
    }
    salt.truncate(length_bytes);
    salt
}

/// A number that a name has for as long as the process lives, and that nobody outside can know.
pub fn keyed_number(user: &str, process_secret: &[u8; 32]) -> u64 {
    let bytes = of_name(b"number", user, process_secret);
    bytes[..8].iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn of_name(purpose: &[u8], user: &str, process_secret: &[u8; 32]) -> Key {
    hmac_sha256(process_secret, &[purpose, b":", user.as_bytes()])
}

/// Waits for client-first, the initial response of SASLInitialResponse.
#[derive(Debug)]
pub struct ServerFirst {
    verifier: ScramVerifier,
    nonce: String,
    binding: ChannelBinding,
}

impl ServerFirst {
    /// `nonce` is this exchange's own (see [`encode_nonce`](super::encode_nonce)); `binding` is what
    /// the offered mechanisms were taken from ([`ChannelBinding::mechanisms`]).
    pub fn new(verifier: ScramVerifier, nonce: &str, binding: ChannelBinding) -> Self {
        Self { verifier, nonce: nonce.to_owned(), binding }
    }

    /// Answers client-first with server-first, for AuthenticationSASLContinue.
    pub fn on_client_first(self, mechanism: &str, message: &[u8]) -> Result<(Vec<u8>, ServerFinal), AuthError> {
        if !is_nonce(self.nonce.as_bytes()) {
            return Err(AuthError::UnusableNonce);
        }
        check_length(message, CLIENT_MESSAGE_LENGTH_BYTES_MAX)?;
        let plus = self.is_plus(mechanism)?;
        let (flag, bare) = split_client_first(message)?;
        self.check_flag(plus, flag)?;
        let client_nonce = read_bare(bare)?;

        let nonce = [client_nonce, self.nonce.as_bytes()].concat();
        let salt = BASE64.encode(&self.verifier.salt);
        let mut server_first = [b"r=", nonce.as_slice(), b",s=", salt.as_bytes()].concat();
        server_first.extend_from_slice(format!(",i={}", self.verifier.iterations).as_bytes());
        let expected = ServerFinal {
            verifier: self.verifier,
            nonce,
            channel_binding: flag.channel_binding(&self.binding),
            client_first_bare: bare.to_vec(),
            server_first: server_first.clone(),
        };
        Ok((server_first, expected))
    }

    fn is_plus(&self, mechanism: &str) -> Result<bool, AuthError> {
        if !self.binding.mechanisms().contains(&mechanism) {
            return Err(AuthError::MechanismNotOffered);
        }
        Ok(mechanism == SCRAM_SHA_256_PLUS)
    }

    /// The flag must fit the mechanism, and must not tell of a downgrade: whoever removed
    /// SCRAM-SHA-256-PLUS from our offer could not remove the client's `y` from what is signed.
    fn check_flag(&self, plus: bool, flag: BindingFlag) -> Result<(), AuthError> {
        match (flag, plus) {
            (BindingFlag::TlsServerEndPoint, true) | (BindingFlag::Unsupported, false) => Ok(()),
            (BindingFlag::TlsServerEndPoint, false) => Err(AuthError::BindingUnexpected),
            (BindingFlag::Unsupported | BindingFlag::NotOffered, true) => Err(AuthError::BindingMissing),
            (BindingFlag::NotOffered, false) => match self.binding {
                ChannelBinding::None => Ok(()),
                ChannelBinding::TlsServerEndPoint(_) => Err(AuthError::BindingDowngraded),
            },
        }
    }
}

/// client-first-message-bare: the nonce is what matters. The name is ignored as in PostgreSQL, since
/// the startup packet has said it; extensions that are not mandatory are ignored too.
fn read_bare(bare: &[u8]) -> Result<&[u8], AuthError> {
    let mut attributes = Attributes::new(bare);
    attributes.expect(b'n', "attribute n expected")?;
    let nonce = attributes.expect(b'r', "attribute r expected")?;
    if !is_nonce(nonce) {
        return Err(AuthError::Malformed("non-printable characters in SCRAM nonce"));
    }
    while !attributes.is_at_end() {
        attributes.next()?;
    }
    Ok(nonce)
}

/// Waits for client-final, a SASLResponse.
#[derive(Debug)]
pub struct ServerFinal {
    verifier: ScramVerifier,
    /// The client's and ours.
    nonce: Vec<u8>,
    /// The only right value of `c=`.
    channel_binding: String,
    client_first_bare: Vec<u8>,
    server_first: Vec<u8>,
}

impl ServerFinal {
    /// Checks the proof. Right: server-final for AuthenticationSASLFinal, and the keys with which we
    /// can log in as this client where salt and iteration count are the same. Wrong:
    /// [`AuthError::WrongProof`], for an unknown user too.
    pub fn on_client_final(self, message: &[u8]) -> Result<(Vec<u8>, ScramKeys), AuthError> {
        let client_final = self.read(message)?;
        let signed = auth_message(&self.client_first_bare, &self.server_first, client_final.without_proof);
        let keys = self.recover_keys(client_final.proof, &signed)?;
        let signature = hmac_sha256(&keys.server_key, &[&signed]);
        Ok((format!("v={}", BASE64.encode(signature)).into_bytes(), keys))
    }

    /// Whether the message is right in all but the proof.
    pub fn check(&self, message: &[u8]) -> Result<(), AuthError> {
        self.read(message).map(drop)
    }

    fn read<'a>(&self, message: &'a [u8]) -> Result<ClientFinal<'a>, AuthError> {
        check_length(message, CLIENT_MESSAGE_LENGTH_BYTES_MAX)?;
        let client_final = read_client_final(message)?;
        if client_final.channel_binding != self.channel_binding.as_bytes() {
            return Err(AuthError::BindingMismatch);
        }
        if client_final.nonce != self.nonce {
            return Err(AuthError::NonceMismatch);
        }
        Ok(client_final)
    }

    /// What the proof is measured against, and what the client was told of it: salt and iteration count.
    pub fn verifier(&self) -> &ScramVerifier {
        &self.verifier
    }

    /// Takes the keys of a verifier that was derived since, with the salt and the iteration count that the client was told.
    pub fn with_derived(self, verifier: ScramVerifier) -> Self {
        if (&verifier.salt, verifier.iterations) != (&self.verifier.salt, self.verifier.iterations) {
            return self;
        }
        Self { verifier, ..self }
    }

    /// ClientKey := ClientProof XOR HMAC(StoredKey, AuthMessage), and H(ClientKey) must be StoredKey.
    fn recover_keys(&self, proof: Key, signed: &[u8]) -> Result<ScramKeys, AuthError> {
        let client_signature = hmac_sha256(&self.verifier.stored_key, &[signed]);
        let client_key = xor(proof, client_signature);
        let matches = stored_key(&client_key).ct_eq(&self.verifier.stored_key);
        if !bool::from(matches) {
            return Err(AuthError::WrongProof);
        }
        Ok(ScramKeys { client_key, server_key: self.verifier.server_key })
    }
}

struct ClientFinal<'a> {
    channel_binding: &'a [u8],
    nonce: &'a [u8],
    proof: Key,
    without_proof: &'a [u8],
}

/// Reads `c=,r=[,extensions],p=`; the proof must come last.
fn read_client_final(message: &[u8]) -> Result<ClientFinal<'_>, AuthError> {
    let mut attributes = Attributes::new(message);
    let channel_binding = attributes.expect(b'c', "attribute c expected")?;
    let nonce = attributes.expect(b'r', "attribute r expected")?;
    let (without_proof, encoded_proof) = loop {
        // Everything before the comma in front of the attribute that comes next.
        let length_read_bytes = message.len() - attributes.length_left_bytes();
        if let (b'p', proof) = attributes.next()? {
            break (&message[..length_read_bytes - 1], proof);
        }
    };
    if !attributes.is_at_end() {
        return Err(AuthError::Malformed("garbage at the end of client-final-message"));
    }
    let proof = decode_key(encoded_proof).ok_or(AuthError::Malformed("malformed proof in client-final-message"))?;
    Ok(ClientFinal { channel_binding, nonce, proof, without_proof })
}

#[cfg(test)]
mod tests {
    use super::super::scram::{SCRAM_SHA_256, salted_password};
    use super::super::scram_client::{ClientFirst, Credentials};
    use super::*;

    // RFC 7677 section 3.
    const CLIENT_FIRST: &[u8] = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const SERVER_FIRST: &[u8] = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
        s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const CLIENT_FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    const SERVER_FINAL: &[u8] = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    fn rfc_verifier() -> ScramVerifier {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        ScramVerifier::from_salted(&salted_password("pencil", &salt, 4096), &salt, 4096)
    }

    fn binding() -> ChannelBinding {
        ChannelBinding::TlsServerEndPoint(b"hash of a certificate".to_vec())
    }

    fn first_error(mechanism: &str, message: impl AsRef<[u8]>, binding: ChannelBinding) -> AuthError {
        ServerFirst::new(mock_verifier("x", &[0; 32], 1), SERVER_NONCE, binding)
            .on_client_first(mechanism, message.as_ref())
            .expect_err("the message must be refused")
    }

    fn rfc_final() -> ServerFinal {
        let (server_first, expected) = ServerFirst::new(rfc_verifier(), SERVER_NONCE, ChannelBinding::None)
            .on_client_first(SCRAM_SHA_256, CLIENT_FIRST)
            .unwrap();
        assert_eq!(server_first, SERVER_FIRST);
        expected
    }

    #[track_caller]
    fn check_final(message: impl AsRef<[u8]>, expected: AuthError) {
        let result = rfc_final().on_client_final(message.as_ref());
        assert_eq!(result.map(|(answer, _)| answer), Err(expected));
    }

    /// One whole exchange with our own client; `password` is the client's, the verifier holds "pencil".
    fn exchange(
        verifier: ScramVerifier,
        password: &str,
        offered: &[&str],
        client: ChannelBinding,
        server: ChannelBinding,
    ) -> Result<ScramKeys, AuthError> {
        let client = ClientFirst::new("", "client", offered, client).unwrap();
        let (server_first, server) =
            ServerFirst::new(verifier, "server", server).on_client_first(client.mechanism(), &client.message())?;
        let pending = client.on_server_first(&server_first).unwrap();
        let salted = salted_password(password, &pending.salt, pending.iterations);
        let (client_final, verify) = pending.finish_with(Credentials::Salted(salted));
        let (server_final, keys) = server.on_client_final(&client_final)?;
        verify.on_server_final(&server_final).unwrap();
        assert_eq!(keys, ScramKeys::from_salted(&salted));
        Ok(keys)
    }

    #[test]
    fn exchange_of_rfc_7677() {
        let (server_final, keys) = rfc_final().on_client_final(CLIENT_FINAL.as_bytes()).unwrap();
        assert_eq!(server_final, SERVER_FINAL);
        let salt = rfc_verifier().salt;
        let expected = ScramKeys::from_salted(&salted_password("pencil", &salt, 4096));
        assert_eq!(keys, expected);
    }

    #[test]
    fn right_and_wrong_passwords_with_and_without_binding() {
        let none = || ChannelBinding::None;
        let both = binding().mechanisms();
        assert!(exchange(rfc_verifier(), "pencil", both, none(), none()).is_ok());
        assert!(exchange(rfc_verifier(), "pencil", both, none(), binding()).is_ok());
        assert!(exchange(rfc_verifier(), "pencil", both, binding(), binding()).is_ok());
        // A client under TLS of a server without binding data says `y`, which is fine.
        assert!(exchange(rfc_verifier(), "pencil", &[SCRAM_SHA_256], binding(), none()).is_ok());
        for client in [none(), binding()] {
            let result = exchange(rfc_verifier(), "pencils", both, client, binding());
            assert_eq!(result, Err(AuthError::WrongProof));
        }
    }

    #[test]
    fn another_certificate_is_a_mismatch() {
        let other = ChannelBinding::TlsServerEndPoint(b"hash of another".to_vec());
        let both = binding().mechanisms();
        let result = exchange(rfc_verifier(), "pencil", both, other, binding());
        assert_eq!(result, Err(AuthError::BindingMismatch));
    }

    #[test]
    fn a_removed_offer_is_noticed() {
        let result = exchange(rfc_verifier(), "pencil", &[SCRAM_SHA_256], binding(), binding());
        assert_eq!(result, Err(AuthError::BindingDowngraded));
    }

    #[test]
    fn mechanism_and_flag_must_agree() {
        let none = ChannelBinding::None;
        let plus_message = "p=tls-server-end-point,,n=,r=a";
        for (mechanism, message, binding, expected) in [
            (SCRAM_SHA_256_PLUS, "n,,n=,r=a", binding(), AuthError::BindingMissing),
            (SCRAM_SHA_256_PLUS, "y,,n=,r=a", binding(), AuthError::BindingMissing),
            (SCRAM_SHA_256, plus_message, binding(), AuthError::BindingUnexpected),
            (SCRAM_SHA_256, plus_message, none.clone(), AuthError::BindingUnexpected),
            (SCRAM_SHA_256_PLUS, plus_message, none.clone(), AuthError::MechanismNotOffered),
            ("SCRAM-SHA-1", "n,,n=,r=a", none.clone(), AuthError::MechanismNotOffered),
            ("", "n,,n=,r=a", none, AuthError::MechanismNotOffered),
            (SCRAM_SHA_256_PLUS, "p=tls-unique,,n=,r=a", binding(), AuthError::BindingTypeUnsupported),
        ] {
            assert_eq!(first_error(mechanism, message, binding), expected, "{mechanism} {message}");
        }
    }

    #[test]
    fn malformed_client_first() {
        for message in [
            "",
            "n",
            "n,",
            "n,,",
            "x,,n=,r=a",
            "n,x=,n=,r=a",
            "n,,r=a",
            "n,,n=",
            "n,,n=,",
            "n,,n=,r",
            "n,,n=,r=",
            "n,,n=,r=a b",
            "n,,n=,r=a\u{e4}",
            "n,,n=,x=,r=a",
            "n,,n=,r=a,",
            "n,,n=,r=a,1=x",
            "n,,n=,r=a\0",
            "n,,r=a,n=",
            "n,,n,r=a",
            "n,,,n=,r=a",
        ] {
            let error = first_error(SCRAM_SHA_256, message, ChannelBinding::None);
            assert!(matches!(error, AuthError::Malformed(_)), "{message:?}: {error:?}");
        }
        let error = |message: &str| first_error(SCRAM_SHA_256, message, ChannelBinding::None);
        assert_eq!(error("n,a=bob,n=,r=a"), AuthError::AuthorizationIdentityUnsupported);
        assert_eq!(error("n,,m=x,n=,r=a"), AuthError::MandatoryExtension);
        assert_eq!(error("n,,n=,r=a,m=x"), AuthError::MandatoryExtension);
        let long = "n,,n=,r=".to_owned() + &"a".repeat(1024 - 7);
        assert_eq!(error(&long), AuthError::MessageTooLong);
    }

    #[test]
    fn optional_extensions_are_ignored() {
        let first = b"n,,n=\xff,r=a,x=1,y=";
        let server = ServerFirst::new(rfc_verifier(), SERVER_NONCE, ChannelBinding::None);
        assert!(server.on_client_first(SCRAM_SHA_256, first).is_ok());
        // In client-final they are signed, so that the proof of a message without them is wrong.
        let extended = CLIENT_FINAL.replace(",p=", ",x=1,p=");
        check_final(extended, AuthError::WrongProof);
    }

    #[test]
    fn malformed_client_final() {
        let nonce = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let proof = &CLIENT_FINAL[CLIENT_FINAL.find(",p=").unwrap()..];
        for message in [
            String::new(),
            "c=biws".to_owned(),
            format!("c=biws,{nonce}"),
            format!("c=biws,{nonce},"),
            format!("c=biws,{nonce},p"),
            format!("c=biws,{nonce},p="),
            format!("c=biws,{nonce},p=AAAA"),
            format!("c=biws,{nonce},p=****"),
            format!("c=biws,{nonce}{proof},x=1"),
            format!("c=biws,{nonce}{proof},"),
            format!("c=biws,{nonce}{proof}="),
            format!("{nonce},c=biws{proof}"),
            format!("c=biws{proof}"),
            format!("c=biws,{nonce}{proof}\0"),
            format!("x=biws,{nonce}{proof}"),
        ] {
            let error = rfc_final().on_client_final(message.as_bytes()).unwrap_err();
            assert!(matches!(error, AuthError::Malformed(_)), "{message:?}: {error:?}");
        }
        check_final("c".repeat(1025), AuthError::MessageTooLong);
        check_final(CLIENT_FINAL.replace(",p=", ",m=1,p="), AuthError::MandatoryExtension);
    }

    #[test]
    fn tampering_is_noticed() {
        check_final(CLIENT_FINAL.replace("k0", "k1"), AuthError::NonceMismatch);
        check_final(CLIENT_FINAL.replace("k0", "k0k0"), AuthError::NonceMismatch);
        check_final(CLIENT_FINAL.replace(SERVER_NONCE, ""), AuthError::NonceMismatch);
        check_final(CLIENT_FINAL.replace("p=dHzb", "p=dHzc"), AuthError::WrongProof);
        // `y,,` where the first message said `n,,`, and nothing at all.
        check_final(CLIENT_FINAL.replace("biws", "eSws"), AuthError::BindingMismatch);
        check_final(CLIENT_FINAL.replace("biws", ""), AuthError::BindingMismatch);
    }

    #[test]
    fn own_nonce_must_be_usable() {
        for nonce in ["", "a,b", "a b"] {
            let server = ServerFirst::new(rfc_verifier(), nonce, ChannelBinding::None);
            let result = server.on_client_first(SCRAM_SHA_256, CLIENT_FIRST);
            assert_eq!(result.map(|_| ()), Err(AuthError::UnusableNonce));
        }
    }

    #[test]
    fn mock_is_the_same_each_time_and_differs_by_user_and_process() {
        let mock = mock_verifier("alice", &[1; 32], 4096);
        assert_eq!(mock, mock_verifier("alice", &[1; 32], 4096));
        assert_eq!((mock.salt.len(), mock.iterations), (16, 4096));
        assert_ne!(mock.salt, mock_verifier("bob", &[1; 32], 4096).salt);
        assert_ne!(mock.salt, mock_verifier("alice", &[2; 32], 4096).salt);
        // The salt is shown to everybody and must not tell the keys.
        assert_ne!(mock.salt, mock.stored_key[..16]);
        assert_ne!(mock.stored_key, mock.server_key);
    }

    #[test]
    fn keys_may_come_after_the_first_answer() {
        let told = ScramVerifier { stored_key: [0; 32], server_key: [0; 32], ..rfc_verifier_cached() };
        let last = |told: &ScramVerifier| {
            let server = ServerFirst::new(told.clone(), SERVER_NONCE, ChannelBinding::None);
            server.on_client_first(SCRAM_SHA_256, CLIENT_FIRST).unwrap().1
        };
        assert_eq!(last(&told).check(CLIENT_FINAL.as_bytes()), Ok(()));
        assert_eq!(last(&told).on_client_final(CLIENT_FINAL.as_bytes()), Err(AuthError::WrongProof));
        let derived = last(&told).with_derived(rfc_verifier_cached());
        assert_eq!(derived.on_client_final(CLIENT_FINAL.as_bytes()).unwrap().0, SERVER_FINAL);
        let other_salt = ScramVerifier { salt: vec![1; 16], ..rfc_verifier_cached() };
        let result = last(&told).with_derived(other_salt).on_client_final(CLIENT_FINAL.as_bytes());
        assert_eq!(result, Err(AuthError::WrongProof));
    }

    #[test]
    fn salts_of_any_length_belong_to_their_name() {
        for length in [0, 1, 16, 32, 33, 100] {
            let salt = mock_salt("alice", &[1; 32], length);
            assert_eq!(salt.len(), length);
            assert_eq!(salt, mock_salt("alice", &[1; 32], length));
        }
        assert_ne!(keyed_number("alice", &[1; 32]), keyed_number("bob", &[1; 32]));
    }

    #[test]
    fn mock_fails_at_the_proof() {
        for password in ["", "pencil", "alice"] {
            let mock = mock_verifier("alice", &[1; 32], 2);
            let both = binding().mechanisms();
            let result = exchange(mock, password, both, binding(), binding());
            assert_eq!(result, Err(AuthError::WrongProof));
        }
    }

    #[test]
    fn debug_shows_no_key() {
        let verifier = rfc_verifier();
        let key = format!("{:?}", verifier.stored_key);
        let first = ServerFirst::new(verifier, SERVER_NONCE, ChannelBinding::None);
        for text in [format!("{first:?}"), format!("{:?}", rfc_final())] {
            assert!(text.contains("ScramVerifier(hidden)"), "{text}");
            assert!(!text.contains(&key[1..20]), "{text}");
        }
    }

    #[test]
    fn damaged_messages_never_panic_nor_pass() {
        use super::super::testing::for_each_mutation;
        for (mechanism, message) in [
            (SCRAM_SHA_256, CLIENT_FIRST),
            (SCRAM_SHA_256_PLUS, b"p=tls-server-end-point,,n=user,r=rOprNGfwEbeRWgbNEkqO"),
        ] {
            for_each_mutation(message, 5_000, |damaged| {
                let server = ServerFirst::new(rfc_verifier_cached(), SERVER_NONCE, binding());
                if let Ok((answer, _)) = server.on_client_first(mechanism, damaged) {
                    assert!(answer.starts_with(b"r=") && !answer.contains(&0));
                }
            });
        }
        for_each_mutation(CLIENT_FINAL.as_bytes(), 5_000, |damaged| {
            let server = ServerFirst::new(rfc_verifier_cached(), SERVER_NONCE, ChannelBinding::None);
            let (_, expected) = server.on_client_first(SCRAM_SHA_256, CLIENT_FIRST).unwrap();
            let passed = expected.on_client_final(damaged).is_ok();
            assert_eq!(passed, damaged == CLIENT_FINAL.as_bytes());
        });
    }

    /// The same verifier without deriving it thousands of times.
    fn rfc_verifier_cached() -> ScramVerifier {
        static VERIFIER: std::sync::OnceLock<ScramVerifier> = std::sync::OnceLock::new();
        VERIFIER.get_or_init(rfc_verifier).clone()
    }
}
