//! Settings about who may enter, and TLS.

use weir_core::settings::AUTH_QUERY;

use super::{Kind, Setting, setting};

const SSLMODES: Kind = Kind::Choice(&["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]);

pub const AUTHENTICATION: &[Setting] = &[
    setting(
        "auth_type",
        Kind::Choice(&["any", "trust", "plain", "md5", "scram-sha-256", "cert", "hba", "pam", "ldap"]),
        "md5",
        "How clients prove who they are. `any`: not at all, and the name is ignored, so every database needs a forced \
         `user`. `trust`: the name must be in `auth_file`, nothing is proved. `plain`: the password in clear text. \
         `md5`: the md5 exchange, or SCRAM where the stored secret is a SCRAM verifier. `scram-sha-256`: SCRAM only. \
         `cert`: a TLS client certificate whose common name is the user. `hba`: as the first line of `auth_hba_file` says \
         that matches. `pam`: a password in clear text that PAM finds right (service `pgbouncer`). `ldap`: one that the directory of \
         `auth_ldap_options` finds right. With both nobody need be in `auth_file`, and the password opens PostgreSQL's door too.",
    ),
    setting(
        "auth_file",
        Kind::Path,
        "",
        "The file of users and secrets: one `\"user\" \"secret\"` per line, where the secret is a password, an md5 \
         hash or a SCRAM verifier as PostgreSQL stores it. Read again by RELOAD.",
    )
    .unset(),
    setting(
        "scram_iterations",
        Kind::Integer { min: 1, max: i32::MAX as u64 },
        "4096",
        "How many iterations a SCRAM secret gets that is made from a password in `auth_file`.",
    ),
    setting(
        "auth_user",
        Kind::Text,
        "",
        "Where it is set, users who are not in `auth_file` are looked up at each login: this user runs `auth_query`. Its own password is that of \
         `auth_file`. With `auth_type = any` nobody is looked up.",
    )
    .unset(),
    setting(
        "auth_query",
        Kind::Text,
        AUTH_QUERY,
        "The query that finds a user's secret; `$1` is the user. It returns one row of two columns, the user and the secret as in `auth_file`, \
         or none where there is no such user; where the secret is NULL nobody's password fits. A function with its owner's rights \
         (`SECURITY DEFINER`) can read `pg_shadow` for an `auth_user` that may not.",
    ),
    setting(
        "auth_dbname",
        Kind::Text,
        "",
        "The entry of `[databases]` in which `auth_query` runs. Where it is not set: the one that the client wants; users of the console are \
         not looked up then.",
    )
    .unset(),
    setting(
        "auth_hba_file",
        Kind::Path,
        "",
        "A file like PostgreSQL's pg_hba.conf, for `auth_type = hba`: the first line that matches the way, database, user and address of a client \
         says what it has to show (`trust`, `reject`, `password`, `md5`, `scram-sha-256`, `cert`, `peer`, `ident`, `pam`, `ldap`). A line that cannot be read, or asks for what \
         Weir does not know, lets nobody in for whom it may be, with a warning. Read again by RELOAD. See [hba.md](hba.md).",
    ),
    setting(
        "auth_ident_file",
        Kind::Path,
        "",
        "A file like PostgreSQL's pg_ident.conf: maps for lines of `auth_hba_file` with `map=NAME` (`cert`, `peer`, `ident`). Read again by RELOAD.",
    )
    .unset(),
    setting(
        "auth_ldap_options",
        Kind::Hidden,
        "",
        "Where passwords are checked with `auth_type = ldap`: options as on a line of `auth_hba_file` ([hba.md](hba.md)), with blanks or commas \
         between them, such as `ldapurl=\"ldaps://ldap.example.org/dc=example,dc=org?uid?sub\"`.",
    )
    .unset(),
];

pub const TLS: &[Setting] = &[
    setting(
        "client_tls_sslmode",
        SSLMODES,
        "disable",
        "TLS for connections from clients. `disable`: none. `allow` and `prefer`: if the client asks. `require`: \
         clients without TLS are refused. `verify-ca` and `verify-full`: clients must show a certificate signed by \
         `client_tls_ca_file`. All but `disable` need `client_tls_key_file` and `client_tls_cert_file`.",
    ),
    setting("client_tls_key_file", Kind::Path, "", "The private key shown to clients, PEM."),
    setting("client_tls_cert_file", Kind::Path, "", "The certificate, with its chain, shown to clients, PEM."),
    setting(
        "client_tls_ca_file",
        Kind::Path,
        "",
        "The certificate authorities that client certificates are verified with, PEM.",
    ),
    setting(
        "client_tls_protocols",
        Kind::List,
        "secure",
        "TLS versions for clients: `tlsv1.2`, `tlsv1.3`, or `secure` and `all`, which stand for both. TLS 1.0 and 1.1 \
         are not spoken.",
    ),
    setting(
        "client_tls_ciphers",
        Kind::Text,
        "default",
        "Cipher suites of TLS 1.2 for clients, as OpenSSL's lists have them (`HIGH:!aNULL`, `ECDHE+AESGCM`, names; openssl-ciphers(1)). Spoken are those \
         with ephemeral keys on elliptic curves and AES in GCM or ChaCha20-Poly1305, six in all. Where a list names none of them TLS 1.2 is not spoken, which is a warning, and an error where TLS 1.3 is not either. `default`, \
         `secure`, `normal`, `fast`, `legacy` and `all` stand for all six.",
    ),
    setting(
        "client_tls13_ciphers",
        Kind::Text,
        "",
        "Cipher suites of TLS 1.3 for clients, by their names: `TLS_AES_256_GCM_SHA384`, `TLS_AES_128_GCM_SHA256`, `TLS_CHACHA20_POLY1305_SHA256`. \
         Empty: all of these. Where it names none of them TLS 1.3 is not spoken, which is a warning, and an error where TLS 1.2 is not either; a SET of such a list is \
         a warning, and leaves TLS as it is.",
    )
    .unset(),
    setting("client_tls_dheparams", Kind::Text, "auto", "Parameters of the DHE key exchange.")
        .no_effect("the TLS library speaks no finite-field DHE, only elliptic curves"),
    setting(
        "client_tls_ecdhcurve",
        Kind::Text,
        "auto",
        "The curve that keys are exchanged on: `prime256v1`, `secp384r1` or `X25519`. `auto`: any of them, and X25519 with ML-KEM-768. Whatever else is named counts as \
         `auto`, with a warning.",
    ),
    setting(
        "server_tls_sslmode",
        SSLMODES,
        "prefer",
        "TLS for connections to servers over TCP. `disable`: none. `allow`: none, unless the server refuses a login \
         without it. `prefer`: if the server speaks it. `require`: always. None of these verifies a certificate, \
         whatever `server_tls_ca_file` says. `verify-ca`: the certificate must be signed by an authority of \
         `server_tls_ca_file`. `verify-full`: and name the host.",
    ),
    setting(
        "server_tls_negotiation",
        Kind::Choice(&["postgres", "direct"]),
        "postgres",
        "How TLS towards a server begins. `postgres`: SSLRequest first. `direct`: at once, with ALPN, which saves a \
         round trip and needs PostgreSQL 17 and `server_tls_sslmode = require` or stricter.",
    )
    .own(),
    setting(
        "server_tls_ca_file",
        Kind::Path,
        "",
        "The certificate authorities that server certificates are verified with, PEM. Empty: those that the system \
         trusts.",
    ),
    setting("server_tls_key_file", Kind::Path, "", "The private key of our client certificate, shown to servers, PEM."),
    setting("server_tls_cert_file", Kind::Path, "", "Our client certificate, shown to servers, PEM."),
    setting("server_tls_protocols", Kind::List, "secure", "TLS versions for servers, as in `client_tls_protocols`."),
    setting(
        "server_tls_ciphers",
        Kind::Text,
        "default",
        "Cipher suites of TLS 1.2 for servers, as in `client_tls_ciphers`.",
    ),
    setting(
        "server_tls13_ciphers",
        Kind::Text,
        "",
        "Cipher suites of TLS 1.3 for servers, as in `client_tls13_ciphers`.",
    )
    .unset(),
];
