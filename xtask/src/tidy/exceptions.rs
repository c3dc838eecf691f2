//! `xtask/tidy-exceptions.txt`: `rule path [subject] [measure]` per line, `#` for comments.

use std::path::Path;

use super::Finding;

const PATH: &str = "xtask/tidy-exceptions.txt";

#[derive(Debug)]
pub struct Exceptions(Vec<Exception>);

#[derive(Debug)]
struct Exception {
    line: usize,
    rule: String,
    path: String,
    subject: String,
    measure: Option<usize>,
}

impl Exceptions {
    pub fn read(root: &Path) -> Result<Self, String> {
        let text =
            std::fs::read_to_string(root.join(PATH)).map_err(|error| format!("could not read {PATH}: {error}"))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        lines
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
            .map(|(number, line)| parse_line(number, line))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// What remains to complain about: findings without an exception, and exceptions that allow too much.
    pub fn apply(&self, findings: Vec<Finding>) -> Vec<String> {
        let mut used: Vec<Option<usize>> = vec![None; self.0.len()];
        let mut complaints = Vec::new();
        for finding in findings {
            let found = self.0.iter().position(|exception| exception.covers(&finding));
            match found {
                Some(index) => used[index] = used[index].max(Some(finding.measure.unwrap_or_default())),
                None => complaints.push(finding.to_string()),
            }
        }
        for (exception, used) in self.0.iter().zip(used) {
            complaints.extend(exception.excess(used));
        }
        complaints
    }
}

impl Exception {
    fn covers(&self, finding: &Finding) -> bool {
        let within = finding.measure.unwrap_or_default() <= self.measure.unwrap_or_default();
        self.rule == finding.rule && self.path == finding.path && self.subject == finding.subject && within
    }

    fn excess(&self, used: Option<usize>) -> Option<String> {
        let allowed = self.measure.unwrap_or_default();
        match used {
            None => Some(format!(
                "{PATH}:{}: exception: nothing needs it any more (or what it allowed has grown): remove the line",
                self.line
            )),
            Some(used) if used < allowed => {
                Some(format!("{PATH}:{}: exception: it allows {allowed}, lower it to {used}", self.line))
            }
            Some(_) => None,
        }
    }
}

fn parse_line(line: usize, text: &str) -> Result<Exception, String> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let measure = words.last().and_then(|word| word.parse().ok());
    if measure.is_some() {
        words.pop();
    }
    let (rule, path, subject) = match words.as_slice() {
        [rule, path] => (*rule, *path, ""),
        [rule, path, subject] => (*rule, *path, *subject),
        _ => return Err(format!("{PATH}:{line}: expected \"rule path [subject] [measure]\"")),
    };
    Ok(Exception { line, rule: rule.to_owned(), path: path.to_owned(), subject: subject.to_owned(), measure })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(measure: usize) -> Finding {
        Finding {
            rule: "function-length",
            path: "a.rs".to_owned(),
            line: 3,
            subject: "f".to_owned(),
            measure: Some(measure),
            text: "long".to_owned(),
        }
    }

    #[test]
    fn an_exception_covers_exactly_what_it_allows() {
        let exceptions = Exceptions::parse("# c\n\nfunction-length a.rs f 80").unwrap();
        assert_eq!(exceptions.apply(vec![finding(80)]), Vec::<String>::new());
        assert_eq!(
            exceptions.apply(vec![finding(79)]),
            ["xtask/tidy-exceptions.txt:3: exception: it allows 80, lower it to 79"]
        );
        assert_eq!(exceptions.apply(vec![finding(81)]).len(), 2, "the finding, and the exception that covers nothing");
        assert_eq!(exceptions.apply(vec![]).len(), 1);
    }

    #[test]
    fn a_malformed_line_is_named() {
        assert_eq!(
            Exceptions::parse("rule").unwrap_err(),
            "xtask/tidy-exceptions.txt:1: expected \"rule path [subject] [measure]\""
        );
    }
}
