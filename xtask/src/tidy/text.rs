//! Rules about any text: its length, and paths of one person's machine.

use super::{File, Finding};

const LINES_MAX: usize = 600;
/// What people write by hand and read from top to bottom.
const SOURCE_SUFFIXES: [&str; 9] = [".rs", ".py", ".go", ".js", ".mjs", ".ts", ".java", ".sh", ".c"];
/// Directories that belong to one machine. Split, so that this file does not name them.
const PRIVATE: [&str; 4] = [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/"), concat!("/tm", "p/")];

pub fn check(file: &File, findings: &mut Vec<Finding>) {
    if SOURCE_SUFFIXES.iter().any(|suffix| file.path.ends_with(suffix)) {
        length(file, findings);
    }
    if !is_generated(&file.path) {
        private_paths(file, findings);
    }
}

/// Lock files: written by package managers.
fn is_generated(path: &str) -> bool {
    ["Cargo.lock", "package-lock.json", "go.sum"].iter().any(|name| path.ends_with(name))
}

fn length(file: &File, findings: &mut Vec<Finding>) {
    let lines = file.text.lines().count();
    if lines > LINES_MAX {
        findings.push(Finding {
            rule: "file-length",
            path: file.path.clone(),
            line: lines,
            subject: String::new(),
            measure: Some(lines),
            text: format!("the file has {lines} lines, at most {LINES_MAX} are allowed"),
        });
    }
}

fn private_paths(file: &File, findings: &mut Vec<Finding>) {
    for (index, line) in file.text.lines().enumerate() {
        if let Some(directory) = PRIVATE.into_iter().find(|directory| names_below(line, directory)) {
            findings.push(Finding {
                rule: "private-path",
                path: file.path.clone(),
                line: index + 1,
                subject: String::new(),
                measure: None,
                text: format!("a path below {directory} belongs to one machine"),
            });
        }
    }
}

/// Whether a line names something below a directory, as a path of its own (not the tail of a longer one). A name with a
/// leading dot is PostgreSQL's socket.
fn names_below(line: &str, directory: &str) -> bool {
    line.match_indices(directory).any(|(index, _)| {
        let before = line[..index].chars().next_back();
        let after = line[index + directory.len()..].chars().next();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-}/:*".contains(c))
            && after.is_some_and(|c| c.is_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check(&File { path: path.to_owned(), text: text.to_owned() }, &mut findings);
        findings.iter().map(|finding| format!("{} {}", finding.rule, finding.line)).collect()
    }

    #[test]
    fn long_files() {
        assert_eq!(rules("a.py", &"x\n".repeat(600)), Vec::<String>::new());
        assert_eq!(rules("a.py", &"x\n".repeat(601)), ["file-length 601"]);
        assert_eq!(rules("a.lock", &"x\n".repeat(601)), Vec::<String>::new());
    }

    #[test]
    fn paths_of_one_machine() {
        let temporary = PRIVATE[3];
        assert_eq!(rules("a.md", &format!("x\nsee \"{temporary}me\"")), ["private-path 2"]);
        assert_eq!(
            rules("a.md", &format!("{temporary}.s.PGSQL.5432 and var{temporary}x and https://e.org{temporary}x")),
            Vec::<String>::new()
        );
    }
}
