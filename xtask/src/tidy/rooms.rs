//! The rooms of a worker call each other in one direction: the order is the one of ARCHITECTURE.md's table of layers.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use super::{File, Finding};

const ROOMS: &str = "crates/core/src/worker/";
/// What rooms are methods of, and the fields by which an upper one has a lower one.
const LAYERS: [&str; 3] = ["Process", "Service", "Traffic"];
const FIELDS: [&str; 2] = ["service", "traffic"];
const DOCUMENT: &str = "ARCHITECTURE.md";
/// Its rows with rooms, the upper one first.
const ROWS: [&str; 3] = ["| process |", "| service |", "| traffic |"];

pub fn check(files: &[File], findings: &mut Vec<Finding>) {
    let Some(document) = files.iter().find(|file| file.path == DOCUMENT) else { return };
    let order = order(&document.text);
    let rooms: Vec<Room> = files.iter().filter_map(Room::read).collect();
    let mut found = |path: &str, line: usize, text: String| {
        let (path, subject) = (path.to_owned(), String::new());
        findings.push(Finding { rule: "rooms", path, line, subject, measure: None, text });
    };
    let place = |name: &str| order.iter().position(|room| room == name);
    for name in order.iter().filter(|name| !rooms.iter().any(|room| room.name == **name)) {
        found(DOCUMENT, 1, format!("the table of layers has {name}.rs, which is no room of the worker"));
    }
    let owners: BTreeMap<&str, &str> =
        rooms.iter().flat_map(|room| room.methods.iter().map(|method| (method.as_str(), room.name.as_str()))).collect();
    for room in rooms.iter().filter(|room| !room.calls.is_empty()) {
        let Some(own) = place(&room.name) else {
            found(&room.path, 1, format!("{}.rs calls rooms, and is not in the table of layers", room.name));
            continue;
        };
        for (method, line) in &room.calls {
            let callee = owners.get(method.as_str()).filter(|callee| **callee != room.name);
            if let Some((callee, _)) =
                callee.and_then(|callee| Some((callee, place(callee)?))).filter(|(_, at)| *at < own)
            {
                found(&room.path, *line, format!("{method} is {callee}.rs's, which stands above {}.rs", room.name));
            }
        }
    }
}

/// The files that the table names, in its order, without their ending.
fn order(document: &str) -> Vec<String> {
    let rows = ROWS.iter().filter_map(|row| document.lines().find(|line| line.starts_with(row)));
    let files = rows.flat_map(|row| row.split('`')).filter_map(|word| word.strip_suffix(".rs"));
    files.map(str::to_owned).collect()
}

/// One file with methods of a layer of the worker; `traffic.rs` is below all.
struct Room {
    path: String,
    name: String,
    methods: BTreeSet<String>,
    /// Of `self` or a layer that it has, and where.
    calls: Vec<(String, usize)>,
}

impl Room {
    fn read(file: &File) -> Option<Self> {
        let name =
            file.path.strip_prefix(ROOMS)?.strip_suffix(".rs").filter(|name| !["mod", "traffic"].contains(name))?;
        let parsed = syn::parse_file(&file.text).ok()?;
        let (methods, calls) = (BTreeSet::new(), Vec::new());
        let mut room = Self { path: file.path.clone(), name: name.to_owned(), methods, calls };
        for item in &parsed.items {
            if let syn::Item::Impl(block) = item
                && matches!(&*block.self_ty, syn::Type::Path(of) if LAYERS.iter().any(|layer| of.path.is_ident(layer)))
            {
                room.visit_item_impl(block);
            }
        }
        Some(room)
    }
}

impl<'ast> Visit<'ast> for Room {
    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.methods.insert(function.sig.ident.to_string());
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if is_layer(&call.receiver) {
            self.calls.push((call.method.to_string(), call.method.span().start().line));
        }
        visit::visit_expr_method_call(self, call);
    }
}

/// `self`, `self.service`, `self.service.traffic`.
fn is_layer(receiver: &syn::Expr) -> bool {
    match receiver {
        syn::Expr::Path(of) => of.path.is_ident("self"),
        syn::Expr::Field(syn::ExprField { base, member: syn::Member::Named(name), .. }) => {
            FIELDS.iter().any(|field| name == field) && is_layer(base)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(upper: &str, lower: &str) -> Vec<String> {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let files = [
            file(DOCUMENT, "| process | them | `a.rs` |\n| traffic | whom | `b.rs` |\n"),
            file("crates/core/src/worker/a.rs", &format!("impl Process {{ fn up(&self) {{ {upper} }} }}")),
            file("crates/core/src/worker/b.rs", &format!("impl Service {{ fn down(&self) {{ {lower} }} }}")),
        ];
        let mut findings = Vec::new();
        check(&files, &mut findings);
        findings.into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn a_room_that_calls_upwards_is_found() {
        assert!(findings("self.service.down();", "self.other(); x.up();").is_empty());
        let said = ["up is a.rs's, which stands above b.rs"];
        assert_eq!(findings("", "if self.up() {}"), said);
        assert_eq!(findings("", "self.traffic.up();"), said);
    }
}
