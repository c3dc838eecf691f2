//! Arrows point down: which of our crates may use which.

use super::{File, Finding};

/// A crate's manifest, and those of our packages that it may name.
const ALLOWED: [(&str, &[&str]); 10] = [
    ("crates/wire/Cargo.toml", &[]),
    ("crates/cluster/Cargo.toml", &["weir-pg"]),
    ("crates/core/Cargo.toml", &["weir-wire", "weir-cluster"]),
    ("crates/simulator/Cargo.toml", &["weir-wire", "weir-cluster", "weir-core", "weir-pg"]),
    ("crates/weir/Cargo.toml", &["weir-wire", "weir-core", "weir-pg"]),
    ("crates/pg/Cargo.toml", &[]),
    ("crates/measure/Cargo.toml", &["weir-pg"]),
    ("crates/lab/Cargo.toml", &["weir-pg", "weir-measure"]),
    ("crates/bench/Cargo.toml", &["weir-measure"]),
    ("crates/guard/Cargo.toml", &["weir-wire", "weir-core", "weir"]),
];

pub fn check(file: &File, findings: &mut Vec<Finding>) {
    let Some((_, allowed)) = ALLOWED.iter().find(|(path, _)| *path == file.path) else { return };
    let mut in_dependencies = false;
    for (index, line) in file.text.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            in_dependencies = header.trim_end_matches(']').ends_with("dependencies");
            continue;
        }
        let name = line.split(['=', '.', ' ']).next().unwrap_or_default();
        let ours = name == "weir" || name.starts_with("weir-");
        if in_dependencies && ours && !allowed.contains(&name) {
            findings.push(Finding {
                rule: "arrow",
                path: file.path.clone(),
                line: index + 1,
                subject: name.to_owned(),
                measure: None,
                text: format!("this crate may not use {name}: arrows point down"),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subjects(path: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check(&File { path: path.to_owned(), text: text.to_owned() }, &mut findings);
        findings.into_iter().map(|finding| finding.subject).collect()
    }

    #[test]
    fn arrows() {
        let manifest = "[package]\nname = \"weir-core\"\n[dependencies]\nweir-wire = { workspace = true }\nsha2 = \
            \"1\"\n[dev-dependencies]\nweir-simulator.workspace = true\n";
        assert_eq!(subjects("crates/core/Cargo.toml", manifest), ["weir-simulator"]);
        assert_eq!(subjects("crates/wire/Cargo.toml", manifest), ["weir-wire", "weir-simulator"]);
        assert_eq!(subjects("xtask/Cargo.toml", manifest), Vec::<String>::new());
    }
}
