//! The few expressions that are selected here: calls of functions on parameters, evaluated from the left to the right.

use super::language::{literal, split};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expression {
    Text(String),
    Current(Box<Expression>),
    /// The value of a parameter that was set in the session.
    Own(String),
    /// `local`: up to the transaction's end.
    SetConfig {
        name: Box<Expression>,
        value: Box<Expression>,
        local: bool,
    },
    /// The other value, or NULL where the two texts are equal.
    UnlessEqual {
        one: Box<Expression>,
        two: Box<Expression>,
        otherwise: Box<Expression>,
    },
}

/// The parameters of a session, as expressions use them.
pub trait Session {
    fn current(&self, name: &str) -> String;
    /// None where it is the default.
    fn own(&self, name: &str) -> Option<String>;
    /// Or the SQLSTATE.
    fn set(&mut self, name: &str, value: &str, local: bool) -> Result<(), &'static str>;
}

impl Expression {
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Some((_, name)) = text.split_once("FILTER(WHERE s.name OPERATOR(pg_catalog.=)") {
            return Some(Self::Own(literal(name.strip_suffix(')')?)));
        }
        if text.starts_with("CASE WHEN pg_catalog.current_setting(E'role')") {
            return Some(Self::Own("role".to_owned()));
        }
        if let Some(rest) = text.strip_prefix("CASE WHEN ") {
            let (when, rest) = rest.split_once(" THEN NULL ELSE ")?;
            let [one, two] = arguments(when, "texteq")?.try_into().ok()?;
            let otherwise = Box::new(Self::parse(rest.strip_suffix(" END")?)?);
            return Some(Self::UnlessEqual { one: Self::boxed(one)?, two: Self::boxed(two)?, otherwise });
        }
        if let Some(arguments) = arguments(text, "set_config") {
            let [name, value, local] = arguments.try_into().ok()?;
            let local = local.trim().parse().ok()?;
            return Some(Self::SetConfig { name: Self::boxed(name)?, value: Self::boxed(value)?, local });
        }
        if let Some(arguments) = arguments(text, "current_setting") {
            return Some(Self::Current(Self::boxed(arguments.first()?)?));
        }
        if let Some(arguments) = arguments(text, "regexp_replace") {
            // Of a time zone with seconds, which nobody here has.
            return Self::parse(arguments.first()?);
        }
        // The default of what nothing here depends on.
        let text = if text == "NULL" { "''" } else { text };
        text.ends_with('\'').then(|| Self::Text(literal(text)))
    }

    fn boxed(text: &str) -> Option<Box<Self>> {
        Self::parse(text).map(Box::new)
    }

    pub fn evaluate(&self, session: &mut impl Session) -> Result<Option<String>, &'static str> {
        match self {
            Self::Text(text) => Ok(Some(text.clone())),
            Self::Current(name) => {
                let name = name.text(session)?;
                Ok(Some(session.current(&name)))
            }
            Self::Own(name) => Ok(session.own(name)),
            Self::SetConfig { name, value, local } => {
                let (name, value) = (name.text(session)?, value.text(session)?);
                session.set(&name, &value, *local)?;
                Ok(Some(value))
            }
            Self::UnlessEqual { one, two, otherwise } => {
                if one.text(session)? == two.text(session)? {
                    Ok(None)
                } else {
                    otherwise.evaluate(session)
                }
            }
        }
    }

    fn text(&self, session: &mut impl Session) -> Result<String, &'static str> {
        self.evaluate(session).map(Option::unwrap_or_default)
    }
}

fn arguments<'a>(text: &'a str, function: &str) -> Option<Vec<&'a str>> {
    let text = text.trim();
    let text = text.strip_prefix("pg_catalog.").unwrap_or(text);
    let inner = text.strip_prefix(function)?.strip_prefix('(')?.strip_suffix(')')?;
    Some(split(inner, ','))
}
