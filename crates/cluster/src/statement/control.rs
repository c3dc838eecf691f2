//! What kind of statement it is.

use pg_query::NodeEnum;
use pg_query::protobuf::{CopyStmt, TransactionStmt, TransactionStmtKind, VariableSetKind, VariableSetStmt};

use super::walk::{Text, Walk};
use super::{Part, Query};
use crate::route::{Class, Why};

pub(super) fn part(statement: &NodeEnum, said: Text<'_>) -> Part {
    let (class, why) = match statement {
        NodeEnum::TransactionStmt(transaction) => of_transaction(transaction),
        NodeEnum::VariableSetStmt(set) => of_setting(set),
        NodeEnum::VariableShowStmt(_) => (Class::Shows, Why::Session),
        _ => match query(statement, said) {
            Ok(query) => return Part::Query(query),
            Err(why) => (Class::Other, why),
        },
    };
    Part::Plain(class, why)
}

fn of_transaction(transaction: &TransactionStmt) -> (Class, Why) {
    use TransactionStmtKind as Kind;
    let class = match transaction.kind() {
        Kind::TransStmtBegin | Kind::TransStmtStart => Class::Begins,
        Kind::TransStmtSavepoint | Kind::TransStmtRelease | Kind::TransStmtRollbackTo => Class::Follows,
        // With AND CHAIN nothing ends.
        Kind::TransStmtCommit | Kind::TransStmtRollback if !transaction.chain => Class::Ends,
        _ => return (Class::Other, Why::Utility),
    };
    (class, Why::Session)
}

fn of_setting(set: &VariableSetStmt) -> (Class, Why) {
    let class = match (set.kind(), &*set.name) {
        (VariableSetKind::VarSetMulti, "TRANSACTION") => Class::Follows,
        (VariableSetKind::VarSetMulti, "SESSION CHARACTERISTICS") => Class::Sets,
        // A snapshot is that of one node.
        (VariableSetKind::VarSetMulti, _) => return (Class::Other, Why::Utility),
        _ if set.is_local => Class::Follows,
        _ => Class::Sets,
    };
    (class, Why::Session)
}

fn query(statement: &NodeEnum, said: Text<'_>) -> Result<Query, Why> {
    let mut walk = Walk::new(said);
    let explained = match statement {
        NodeEnum::ExplainStmt(explain) => explain.query.as_ref().and_then(|query| query.node.as_ref()),
        _ => Some(statement),
    };
    match explained.ok_or(Why::NotFollowed)? {
        NodeEnum::CopyStmt(copy) => of_copy(&mut walk, copy)?,
        query if is_query(query) => walk.statement(query)?,
        other => return Err(kind(other)),
    }
    walk.query()
}

fn is_query(statement: &NodeEnum) -> bool {
    use NodeEnum::{DeleteStmt, InsertStmt, MergeStmt, SelectStmt, UpdateStmt};
    matches!(statement, SelectStmt(_) | InsertStmt(_) | UpdateStmt(_) | DeleteStmt(_) | MergeStmt(_))
}

fn of_copy<'a>(walk: &mut Walk<'a>, copy: &'a CopyStmt) -> Result<(), Why> {
    if copy.is_program || !copy.filename.is_empty() {
        return Err(Why::Utility);
    }
    match (&copy.relation, copy.query.as_ref().and_then(|query| query.node.as_ref())) {
        (Some(relation), _) => walk.copied(relation, copy),
        (None, Some(query)) => walk.statement(query),
        (None, None) => Err(Why::NotFollowed),
    }
}

/// What is no query, in two kinds.
fn kind(statement: &NodeEnum) -> Why {
    match statement {
        NodeEnum::ListenStmt(_)
        | NodeEnum::NotifyStmt(_)
        | NodeEnum::UnlistenStmt(_)
        | NodeEnum::PrepareStmt(_)
        | NodeEnum::ExecuteStmt(_)
        | NodeEnum::DeallocateStmt(_)
        | NodeEnum::DeclareCursorStmt(_)
        | NodeEnum::FetchStmt(_)
        | NodeEnum::ClosePortalStmt(_)
        | NodeEnum::LockStmt(_)
        | NodeEnum::TruncateStmt(_)
        | NodeEnum::VacuumStmt(_)
        | NodeEnum::CallStmt(_)
        | NodeEnum::DoStmt(_)
        | NodeEnum::DiscardStmt(_)
        | NodeEnum::CheckPointStmt(_)
        | NodeEnum::ClusterStmt(_)
        | NodeEnum::ReindexStmt(_)
        | NodeEnum::RefreshMatViewStmt(_)
        | NodeEnum::LoadStmt(_)
        | NodeEnum::ConstraintsSetStmt(_) => Why::Utility,
        _ => Why::Ddl,
    }
}
