//! What others than PostgreSQL are asked about clients, and records of `auth_hba_file`, in words.

use std::sync::Arc;

use weir_core::Settings;
use weir_core::hba::{Addresses, Hba, Kind, Name, Network, Record};
use weir_core::outside::{Authority, Directory, Entry, Finding, Inquiry};
use weir_core::settings::AuthType;

use super::settings::auth_type;
use super::words::{Bindings, Word};

pub fn words(inquiry: &Inquiry) -> String {
    match inquiry {
        Inquiry::UserOf { uid } => format!("user of {uid}"),
        Inquiry::HostOf { ip } => format!("host of {ip}"),
        Inquiry::OwnerOf { theirs, ours } => format!("owner of {theirs} to {ours}"),
        Inquiry::Password { user, password, authority, from } => {
            let whom: &str = match authority {
                Authority::Pam { service } => service,
                Authority::Directory(directory) => &directory.servers[0],
            };
            let from = from.map_or("nowhere".to_owned(), |ip| ip.to_string());
            format!("{whom} about {user} {} from {from}", password.0)
        }
    }
}

/// `right`, `wrong`, `nothing`, or a name.
pub fn finding(words: &[Word]) -> Result<Finding, String> {
    let [word] = words else { return Err("one word is heard".to_owned()) };
    Ok(match &*word.to_string() {
        "right" => Finding::Right,
        "wrong" => Finding::Wrong("so they say".to_owned()),
        "nothing" => Finding::Name(None),
        name => Finding::Name(Some(name.into())),
    })
}

/// `pam`, or a directory that is called so.
pub fn authority(name: &str) -> Authority {
    if name == "pam" {
        return Authority::Pam { service: name.into() };
    }
    let entry = Entry::Named { prefix: String::new(), suffix: String::new() };
    Authority::Directory(Arc::new(Directory { ldaps: false, servers: vec![name.to_owned()], start_tls: false, entry }))
}

/// For everybody.
pub fn vouches_for_all(settings: &mut Settings, name: &str) {
    let method = if name == "pam" { AuthType::Pam } else { AuthType::Ldap };
    (settings.auth_type, settings.hba) = (AuthType::Hba, Arc::new(Hba::of_all(method, &authority(name))));
}

/// `record host DATABASE USER ADDRESS METHOD [AUTHORITY]`
pub fn record(settings: &mut Settings, words: &[Word]) -> Result<(), String> {
    let texts: Result<Vec<_>, _> = words.iter().map(|word| word.value(&Bindings::new())).collect();
    let texts: Vec<_> = texts?.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
    let [kind, database, user, address, method, authority_name @ ..] = &texts[..] else {
        return Err("record host DATABASE USER ADDRESS METHOD [AUTHORITY]".to_owned());
    };
    let name = |text: &String| match (&**text, text.strip_prefix('+')) {
        ("all", _) => Name::All,
        ("samerole", _) => Name::SameRole,
        (_, Some(role)) => Name::MemberOf(role.into()),
        (name, None) => Name::Is(name.into()),
    };
    let addresses = match (&**address, address.parse()) {
        ("all", _) => Addresses::All,
        (_, Ok(ip)) => Addresses::Of(Network::with_bits(ip, 32).into_iter().collect()),
        (host, Err(_)) => Addresses::Host(host.into()),
    };
    let mut records = settings.hba.records.clone();
    records.push(Record {
        line: records.len() as u32 + 1,
        kind: if kind == "local" { Kind::Local } else { Kind::Host },
        databases: vec![name(database)],
        users: vec![name(user)],
        addresses,
        method: auth_type(method)?,
        map: None,
        authority: authority_name.first().map(|name| authority(name)),
    });
    (settings.auth_type, settings.hba) = (AuthType::Hba, Arc::new(Hba { records }));
    Ok(())
}
