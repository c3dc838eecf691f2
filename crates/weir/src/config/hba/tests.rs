//! Records and maps as files spell them.

use weir_core::hba::Asked;

use super::*;
use crate::config::ini::tests::{Table, arbitrary};

/// What was read of these files, of which `hba` and `ident` are the two that the settings name, and what was said of them.
fn reads(files: &[(&str, &str)]) -> (Hba, Vec<String>) {
    let (mut source, mut problems) = (Table::of(files), Problems::default());
    let place = Place::new(&"weir.ini".into(), 0);
    let hba = read(Some(("hba", &place)), Some(("ident", &place)), &mut source, &mut problems);
    (hba, problems.iter().map(ToString::to_string).collect())
}

fn of(text: &str) -> (Hba, Vec<String>) {
    reads(&[("hba", text), ("ident", "m ann app\n")])
}

/// The line and the method for whom comes from `address`, a Unix socket where it is empty.
fn decides(hba: &Hba, address: &str, tls: bool, database: &str, user: &str) -> Option<(u32, AuthType)> {
    let asked =
        Asked { address: address.parse().ok(), tls, databases: Some(&[database]), user, host: None, roles: None };
    hba.record(&asked).unwrap().map(|record| (record.line, record.method))
}

#[test]
fn the_first_line_that_matches_decides() {
    let (hba, said) = of("# TYPE DATABASE USER ADDRESS METHOD\n\
         local   all  postgres                      trust # ours\n\
         local   sameuser, \"all\",x  all           reject\n\
         hostssl all  all   10.0.0.0/8              scram-sha-256\n\
         host    a,b  ann,\"b\"\"ob\" 192.168.1.0 255.255.255.0 md5\n\
         hostnossl \\\n all all ::1/128 password\n\
         host    /^d[0-9]$ all all cert map=m\n");
    assert_eq!(said, Vec::<String>::new());
    for (address, tls, database, user, expected) in [
        ("", false, "d", "postgres", Some((2, AuthType::Trust))),
        ("", false, "ann", "ann", Some((3, AuthType::Reject))),
        ("", false, "all", "ann", Some((3, AuthType::Reject))),
        ("", false, "d", "ann", None),
        ("10.1.1.1", true, "d", "ann", Some((4, AuthType::ScramSha256))),
        ("10.1.1.1", false, "d", "ann", None),
        ("192.168.1.9", false, "b", "b\"ob", Some((5, AuthType::Md5))),
        ("192.168.2.9", false, "b", "ann", None),
        ("::1", false, "b", "ann", Some((6, AuthType::Plain))),
        ("::1", true, "b", "ann", None),
        ("8.8.8.8", true, "d1", "ann", Some((8, AuthType::Cert))),
    ] {
        assert_eq!(decides(&hba, address, tls, database, user), expected, "{address} {database} {user}");
    }
    assert!(hba.records.last().unwrap().map.is_some());
}

#[test]
fn what_cannot_be_read_lets_nobody_in_for_whom_it_may_be() {
    for (line, refuses_others, wrong) in [
        ("local all ann peer map=n", false, "no map \"n\" is in auth_ident_file"),
        ("local all ann ldap ldapserver=a", false, "LDAP needs ldapbasedn, ldapprefix or ldapsuffix"),
        ("local all ann pam pam_use_hostname=1", false, "the option \"pam_use_hostname=1\" is not supported"),
        ("local all ann gss include_realm=0", false, "the method \"gss\" is not supported"),
        ("local all ann nonsense", false, "\"nonsense\" is no method"),
        ("local all ann", false, "the method is missing"),
        ("local all", true, "the user is missing"),
        ("local all ann md5 map=m", false, "the option \"map=m\" is not supported"),
        ("local all ann cert map=n", false, "no map \"n\" is in auth_ident_file"),
        ("local all @nowhere md5", true, "could not read \"nowhere\": entity not found"),
        ("local all /( md5", true, "the regular expression \"(\" is not valid"),
        ("lokal all ann md5", true, "\"lokal\" is no type of a record"),
        ("local all \"ann md5", true, "a quote is open"),
        ("local all ann trust,md5", false, "a list stands where one word is expected"),
    ] {
        let (hba, said) = of(&format!("{line}\nlocal all all trust\n"));
        assert!(said[0].starts_with(&format!("hba:1: warning: {wrong}")), "{line}: {said:?}");
        assert_eq!(decides(&hba, "", false, "d", "ann"), Some((1, AuthType::Reject)), "{line}");
        let others = if refuses_others { (1, AuthType::Reject) } else { (2, AuthType::Trust) };
        assert_eq!(decides(&hba, "", false, "d", "bob"), Some(others), "{line}");
    }
    for line in ["host all ann db.example.org/32 md5", "host all ann 10.0.0.0 md5", "host all ann 10.0.0.0/33 md5"] {
        let (hba, said) = of(&format!("{line}\nhost all all all trust\n"));
        assert_eq!(said.len(), 1, "{line}");
        assert_eq!(decides(&hba, "8.8.8.8", false, "d", "ann"), Some((1, AuthType::Reject)), "{line}");
    }
    let (hba, said) = of("host all all 10.0.0.1/8 trust\nhostgssenc all all all trust\n");
    assert!(said.len() == 1 && said[0].ends_with("the line is for nobody"), "{said:?}");
    assert_eq!(decides(&hba, "10.0.0.1", false, "d", "ann"), None);
}

#[test]
fn what_others_have_to_tell_is_known_by_its_form() {
    let (hba, said) = of("host samerole,\"samerole\" +staff,\"+x\",@more db.example.org ident map=m\n\
         host all all \"samenet\" pam\n\
         host all all .example.org pam pamservice=weir\n\
         local samegroup all ident\n\
         host all all all ldap ldapserver=a \"ldapport\"=1389 ldapprefix=\"uid=\" ,ldapsuffix=\",dc=net\"\n");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("could not read \"more\""), "{said:?}");
    let (hba_of_more, said) = reads(&[
        ("hba", "host samerole,\"samerole\" +staff,\"+x\",@more db.example.org ident map=m\n"),
        ("more", "+others bob\n"),
        ("ident", "m ann app\n"),
    ]);
    assert_eq!(said, Vec::<String>::new());
    let first = &hba_of_more.records[0];
    assert!(matches!(&first.databases[..], [Name::SameRole, Name::Is(name)] if **name == *"samerole"));
    let [Name::MemberOf(staff), Name::Is(quoted), Name::MemberOf(others), Name::Is(bob)] = &first.users[..] else {
        panic!("{first:?}");
    };
    assert_eq!([&**staff, quoted, others, bob], ["staff", "+x", "others", "bob"]);
    assert_eq!((&first.addresses, first.method), (&Addresses::Host("db.example.org".into()), AuthType::Ident));
    assert!(first.map.is_some());
    let records = &hba.records[1..];
    let service = |service: &str| Some(Authority::Pam { service: service.into() });
    assert_eq!(
        (&records[0].addresses, &records[0].authority),
        (&Addresses::Host("samenet".into()), &service("pgbouncer"))
    );
    assert_eq!(
        (&records[1].addresses, &records[1].authority),
        (&Addresses::Host(".example.org".into()), &service("weir"))
    );
    assert!(matches!(records[2].databases[..], [Name::SameRole]) && records[2].method == AuthType::Peer);
    let Some(Authority::Directory(directory)) = &records[3].authority else { panic!("{records:?}") };
    assert_eq!((records[3].method, &directory.servers[..]), (AuthType::Ldap, &["a:1389".to_owned()][..]));
    let text = "ldapserver=a,ldapbasedn=\"dc=x,dc=y\" , \"ldapport\"=7";
    assert_eq!(directory_of(text), "a:7");
}

fn directory_of(text: &str) -> String {
    directory(text).unwrap().servers.join(" ")
}

#[test]
fn own_addresses_are_the_machine_s() {
    let (hba, said) = of("host all all samehost trust\nhost all all samenet md5\n");
    assert_eq!(said, Vec::<String>::new());
    for (address, expected) in [
        ("127.0.0.1", Some((1, AuthType::Trust))),
        ("127.9.9.9", Some((2, AuthType::Md5))),
        ("192.0.2.7", Some((1, AuthType::Trust))),
        ("::ffff:192.0.2.7", Some((1, AuthType::Trust))),
        ("192.0.2.8", Some((2, AuthType::Md5))),
        ("192.0.3.7", None),
        ("fd00::7", Some((1, AuthType::Trust))),
        ("fd00:1::7", Some((2, AuthType::Md5))),
        // Without a mask that says anything an address is alone.
        ("10.99.0.1", Some((1, AuthType::Trust))),
        ("10.99.0.2", None),
        ("fd01::7", Some((1, AuthType::Trust))),
        ("fd01::8", None),
        ("fd02::7", Some((1, AuthType::Trust))),
        ("fd02::8", None),
        ("", None),
    ] {
        assert_eq!(decides(&hba, address, false, "d", "ann"), expected, "{address}");
    }
    let own = crate::config::ini::FileSystem::default().own_addresses().unwrap();
    assert!(own.contains(&("127.0.0.1".parse().unwrap(), "255.0.0.0".parse().unwrap())), "{own:?}");
}

/// As PostgreSQL 18 reads each of these, with `ann` (or `u1`) to be kept out.
#[test]
fn words_are_postgresql_s() {
    for (line, user) in [
        ("local \"/^d[0-9]{0,3}$\" all reject", "ann"),
        ("local all \"/^u[0-9]{1,3}$\" reject", "u1"),
        ("local all /\"^ann$\" reject", "ann"),
        ("local al\"l\" ann reject", "ann"),
        ("local all @\"bad users\" reject", "ann"),
        ("local all @bad reject", "ann"),
        ("local all @more reject", "ann"),
        (",local all ann reject", "ann"),
        ("local all ,ann reject", "ann"),
        ("local all bob,,ann reject", "ann"),
        ("local all bob,\tann reject", "ann"),
        ("local,host all ann reject", "ann"),
        ("local all \"a\"nn reject", "ann"),
    ] {
        let hba = format!("{line}\nlocal all all trust\n");
        let files = [
            ("hba", &*hba),
            ("ident", ""),
            ("bad users", "ann"),
            ("bad", "# no \\\nbob\na\\\nnn\n"),
            ("more", "include bad\ninclude_if_exists nowhere\n"),
        ];
        let (hba, said) = reads(&files);
        assert_eq!(said.is_empty(), !line.contains("local,host"), "{line}: {said:?}");
        assert_eq!(decides(&hba, "", false, "d", user), Some((1, AuthType::Reject)), "{line}");
    }
    for (line, user) in [
        ("local all \u{a0}ann trust", "ann"),
        ("local all \u{b}ann trust", "ann"),
        ("# \\\r\r\nlocal all all trust", "ann"),
        ("local all @gone trust", "bob"),
        ("local \"all\" ann trust", "ann"),
    ] {
        let (hba, _) = reads(&[("hba", line), ("ident", ""), ("gone", "# no more: \\\nbob\nann\n")]);
        assert_eq!(decides(&hba, "", false, "d", user), None, "{line}");
    }
}

#[test]
fn files_that_name_one_another_often_are_read_so_often() {
    let (hba, said) =
        reads(&[("hba", "local all @a reject\nlocal all all trust"), ("ident", ""), ("a", "include_dir d")]);
    assert_eq!(decides(&hba, "", false, "d", "ann"), Some((1, AuthType::Reject)), "{said:?}");
    for text in ["include hba\n".repeat(6), "local all @hba,@hba,@hba trust\n".repeat(6)] {
        let (hba, said) = reads(&[("hba", &*text), ("ident", "")]);
        assert!((1..20).contains(&said.len()), "{}", said.len());
        assert_ne!(decides(&hba, "", false, "d", "ann").map(|(_, method)| method), Some(AuthType::Trust));
    }
}

#[test]
fn files_name_one_another() {
    let (hba, said) = reads(&[
        ("hba", "include more/hba\ninclude_if_exists nowhere\nlocal @more/names all md5\n"),
        ("more/hba", "local d @names trust\n"),
        ("more/names", "ann, bob # two\n\n\"carl\"\n"),
        ("ident", ""),
    ]);
    assert_eq!(said, Vec::<String>::new());
    assert_eq!(decides(&hba, "", false, "d", "carl"), Some((1, AuthType::Trust)));
    assert_eq!(decides(&hba, "", false, "bob", "x"), Some((3, AuthType::Md5)));
    let (hba, said) = reads(&[
        ("hba", "include_dir more\nlocal e @list md5\n"),
        ("more/2.conf", "local d ann trust\n"),
        ("more/10.conf", "local d ann reject\n"),
        ("more/.1.conf", "nonsense"),
        ("more/1.conf~", "nonsense"),
        ("list", "include_dir lists"),
        ("lists/a.conf", "bob"),
        ("ident", ""),
    ]);
    assert_eq!(said, Vec::<String>::new());
    assert_eq!(decides(&hba, "", false, "d", "ann"), Some((1, AuthType::Reject)));
    assert_eq!(decides(&hba, "", false, "e", "bob"), Some((2, AuthType::Md5)));
    let (_, said) = reads(&[("hba", "include_dir nowhere\n"), ("ident", "")]);
    assert_eq!(said, ["hba:1: error: could not read the folder \"nowhere\": entity not found"]);
    let (_, said) = reads(&[("hba", "include hba\n"), ("ident", "")]);
    assert_eq!(said, ["hba:1: error: files include one another too deep"]);
    let (_, said) = reads(&[("hba", "include nowhere\n"), ("ident", "")]);
    assert_eq!(said, ["hba:1: error: could not read \"nowhere\": entity not found"]);
    let (hba, said) = reads(&[("hba", "local all \\\nann reject\\"), ("ident", "")]);
    assert!(said.is_empty() && decides(&hba, "", false, "d", "ann") == Some((1, AuthType::Reject)), "{said:?}");
    let (hba, said) = reads(&[("ident", "m ann\nm ann +staff\n")]);
    assert!(hba.records.is_empty() && said.len() == 3, "{said:?}");
}

#[test]
fn arbitrary_lines_never_panic() {
    let pieces = [
        "local",
        "host",
        " ",
        ",",
        "\"",
        "all",
        "@hba",
        "+",
        "/",
        "\\\n",
        "\n",
        "10.0.0.0/8",
        "é",
        "#",
        "md5",
        "map=m",
    ];
    for text in arbitrary(&pieces) {
        of(&text);
    }
}

#[test]
fn a_list_of_too_many_files_lets_nobody_in() {
    let names = vec!["@names"; FILES_MAX + 1].join(",");
    let text = format!("local all {names} reject\nlocal all all trust\n");
    let (hba, said) = reads(&[("hba", &*text), ("ident", ""), ("names", "bob")]);
    assert_eq!(said, ["hba:1: warning: more than 1000 files are named: the line lets nobody in"]);
    assert_eq!(decides(&hba, "", false, "d", "ann"), Some((1, AuthType::Reject)));
}
