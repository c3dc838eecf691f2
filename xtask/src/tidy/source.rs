//! Rules about Rust sources: how they open, how long functions are, no `unwrap`, no message bytes outside wire, and who moves a state.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::{File, Finding};

const FUNCTION_LINES_MAX: usize = 70;
/// Where the tags of messages must not be spelled.
const ABOVE_WIRE: [&str; 2] = ["crates/core/src/", "crates/weir/src/"];
/// Where a client's and a server's state and link are moved, each by one function that knows which may follow which.
const CORE: &str = "crates/core/src/";
const MOVERS: [&str; 2] = ["crates/core/src/client.rs", "crates/core/src/server.rs"];
const MOVED: [&str; 2] = ["state", "link"];
/// SCRAM's attributes are letters too (RFC 5802), inside messages that wire has opened.
const SCRAM: &str = "crates/core/src/auth/scram";

pub fn check(file: &File, findings: &mut Vec<Finding>) {
    if !file.path.ends_with(".rs") {
        return;
    }
    opening(file, findings);
    match syn::parse_file(&file.text) {
        Ok(parsed) => {
            let in_tests = is_test_path(&file.path);
            let above_wire =
                ABOVE_WIRE.iter().any(|prefix| file.path.starts_with(prefix)) && !file.path.starts_with(SCRAM);
            Walk { file, findings, in_tests, above_wire }.visit_file(&parsed);
        }
        Err(error) => {
            push(file, findings, "syntax", error.span(), String::new(), None, format!("cannot be parsed: {error}"))
        }
    }
}

/// Files that are tests, or serve them, by where they are.
fn is_test_path(path: &str) -> bool {
    let directories = ["tests/", "benches/", "fuzz/", "examples/"];
    directories.iter().any(|directory| path.starts_with(directory) || path.contains(&format!("/{directory}")))
        || path.ends_with("/tests.rs")
        || path.ends_with("_tests.rs")
}

fn opening(file: &File, findings: &mut Vec<Finding>) {
    let is_exempt = file.path.contains("/fixtures/") || file.path.ends_with("/mod.rs");
    if !is_exempt && !file.text.starts_with("//!") {
        findings.push(Finding {
            rule: "opening",
            path: file.path.clone(),
            line: 1,
            subject: String::new(),
            measure: None,
            text: "the file must open with //! and say what it owns".to_owned(),
        });
    }
}

fn push(
    file: &File,
    findings: &mut Vec<Finding>,
    rule: &'static str,
    span: Span,
    subject: String,
    measure: Option<usize>,
    text: String,
) {
    findings.push(Finding { rule, path: file.path.clone(), line: span.start().line, subject, measure, text });
}

struct Walk<'a> {
    file: &'a File,
    findings: &'a mut Vec<Finding>,
    in_tests: bool,
    above_wire: bool,
}

impl Walk<'_> {
    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let first = signature.span().start().line;
        let lines = block.span().end().line.saturating_sub(first) + 1;
        if lines > FUNCTION_LINES_MAX {
            let name = signature.ident.to_string();
            let text = format!("function {name} has {lines} lines, at most {FUNCTION_LINES_MAX} are allowed");
            push(self.file, self.findings, "function-length", signature.span(), name, Some(lines), text);
        }
    }

    fn within(&mut self, attributes: &[syn::Attribute], walk: impl FnOnce(&mut Self)) {
        let outside = self.in_tests;
        self.in_tests |= attributes.iter().any(is_test_attribute);
        walk(self);
        self.in_tests = outside;
    }

    fn tag(&mut self, literal: &syn::Lit) {
        let value = match literal {
            syn::Lit::Byte(byte) => byte.value(),
            // The same in another spelling.
            syn::Lit::ByteStr(bytes) if bytes.value().len() == 1 => bytes.value()[0],
            _ => return,
        };
        // The tags of protocol 3: letters, and 1, 2, 3 for ParseComplete, BindComplete, CloseComplete.
        if self.above_wire && !self.in_tests && (value.is_ascii_alphabetic() || (b'1'..=b'3').contains(&value)) {
            let text = format!("b'{}' looks like a message's tag: those are spelled in wire only", char::from(value));
            push(self.file, self.findings, "message-byte", literal.span(), String::new(), None, text);
        }
    }
}

impl Walk<'_> {
    fn moved(&mut self, place: &syn::Expr) {
        let syn::Expr::Field(syn::ExprField { member: syn::Member::Named(field), .. }) = place else { return };
        let is_room = self.file.path.starts_with(CORE) && !MOVERS.contains(&self.file.path.as_str());
        if is_room && !self.in_tests && MOVED.iter().any(|moved| field == moved) {
            let text = format!("{field} is moved by its own function only: enter() or bind()");
            push(self.file, self.findings, "state", field.span(), field.to_string(), None, text);
        }
    }
}

/// `#[test]`, `#[cfg(test)]` and what else has the word in it, but for `cfg(not(test))`.
fn is_test_attribute(attribute: &syn::Attribute) -> bool {
    if attribute.path().is_ident("test") {
        return true;
    }
    match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let text = list.tokens.to_string();
            text.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test") && !text.starts_with("not")
        }
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block);
        self.within(&item.attrs, |walk| visit::visit_item_fn(walk, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
        self.within(&item.attrs, |walk| visit::visit_impl_item_fn(walk, item));
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
        self.within(&item.attrs, |walk| visit::visit_trait_item_fn(walk, item));
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.within(&item.attrs, |walk| visit::visit_item_mod(walk, item));
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.within(&item.attrs, |walk| visit::visit_item_impl(walk, item));
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if !self.in_tests && call.method == "unwrap" {
            let text = "unwrap outside tests: return the error, or expect an invariant that is visible here".to_owned();
            push(self.file, self.findings, "unwrap", call.method.span(), String::new(), None, text);
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_pat(&mut self, pattern: &'ast syn::Pat) {
        if let syn::Pat::Lit(literal) = pattern {
            self.tag(&literal.lit);
        }
        visit::visit_pat(self, pattern);
    }

    fn visit_expr_assign(&mut self, assign: &'ast syn::ExprAssign) {
        self.moved(&assign.left);
        visit::visit_expr_assign(self, assign);
    }

    /// `mem::replace` and its like are the only functions that a state is lent to.
    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        for argument in &call.args {
            if let syn::Expr::Reference(syn::ExprReference { mutability: Some(_), expr, .. }) = argument {
                self.moved(expr);
            }
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        if matches!(binary.op, syn::BinOp::Eq(_) | syn::BinOp::Ne(_)) {
            for side in [&binary.left, &binary.right] {
                if let syn::Expr::Lit(literal) = &**side {
                    self.tag(&literal.lit);
                }
            }
        }
        visit::visit_expr_binary(self, binary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check(&File { path: path.to_owned(), text: text.to_owned() }, &mut findings);
        findings
            .iter()
            .map(|finding| format!("{}:{} {}", finding.rule, finding.line, finding.subject).trim_end().to_owned())
            .collect()
    }

    #[test]
    fn files_open_with_what_they_own() {
        assert_eq!(rules("crates/a/src/a.rs", "fn f() {}"), ["opening:1"]);
        assert_eq!(rules("crates/a/src/mod.rs", "mod a;"), Vec::<String>::new());
        assert_eq!(rules("a.rs", "//! A.\nfn f() {"), ["syntax:2"]);
    }

    #[test]
    fn functions_are_short() {
        let long = |lines: usize| {
            format!("//! A.\nimpl X {{\n/// Doc.\nfn long() {{\n{}}}\n}}", "    a();\n".repeat(lines - 2))
        };
        assert_eq!(rules("a.rs", &long(70)), Vec::<String>::new());
        assert_eq!(rules("a.rs", &long(71)), ["function-length:4 long"]);
    }

    #[test]
    fn unwrap_is_for_tests() {
        let text = "//! A.\nfn f() { a.unwrap(); }\n#[cfg(test)]\nmod tests { fn g() { a.unwrap(); } }\n#[test]\nfn h() { a.unwrap(); }\n\
                    #[cfg(not(test))]\nfn i() { a.unwrap() }";
        assert_eq!(rules("crates/a/src/a.rs", text), ["unwrap:2", "unwrap:8"]);
        assert_eq!(rules("crates/a/tests/a.rs", text), Vec::<String>::new());
    }

    #[test]
    fn states_are_moved_in_one_place() {
        let text = "//! A.\nfn f() { a.state = B; }\nfn g() { replace(&mut a.link, B); }\nfn h() { look(&a.link); a.pool = b.state; }";
        assert_eq!(rules("crates/core/src/a.rs", text), ["state:2 state", "state:3 link"]);
        assert_eq!(rules("crates/core/src/server.rs", text), Vec::<String>::new());
        assert_eq!(rules("crates/weir/src/a.rs", text), Vec::<String>::new());
    }

    #[test]
    fn tags_are_spelled_in_wire() {
        let text = "//! A.\nfn f(t: u8) -> bool { match t { b'Q' | b'1' => true, b'/' => false, _ => t == b'Z' } }";
        assert_eq!(rules("crates/core/src/a.rs", text), ["message-byte:2", "message-byte:2", "message-byte:2"]);
        assert_eq!(rules("crates/wire/src/a.rs", text), Vec::<String>::new());
        let strings = "//! A.\nfn f(t: &[u8]) -> bool { match t { b\"I\" => true, b\"DATE\" => false, _ => t == b\"1\" } }\n\
                       fn g() { use_it(b\"x\") }";
        assert_eq!(rules("crates/core/src/a.rs", strings), ["message-byte:2", "message-byte:2"]);
    }
}
