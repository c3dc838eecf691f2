//! Names of PostgreSQL's own that mean the same on every node.
//!
//! Not in the lists: what has to do with a session or a node (sequences, advisory locks, settings, statistics, snapshots, large objects, catalogues),
//! and whatever others have defined. Sorted, each of them.

use pg_query::protobuf::TypeName;
use pg_query::{Node, NodeEnum};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sameness {
    Same,
    /// Another value each time: without a table it is asked of the coordinator.
    Fresh,
}

/// The strings of a list that has nothing else.
pub(super) fn strings(nodes: &[Node]) -> Option<Vec<&str>> {
    let strings = nodes.iter().map(|node| match &node.node {
        Some(NodeEnum::String(string)) => Some(&*string.sval),
        _ => None,
    });
    strings.collect()
}

/// A name without a schema, or in `pg_catalog`, which is searched first.
pub(super) fn own(nodes: &[Node]) -> Option<&str> {
    match strings(nodes)?[..] {
        [name] | ["pg_catalog", name] => Some(name),
        _ => None,
    }
}

pub(super) fn sameness(function: &str) -> Option<Sameness> {
    if FUNCTIONS.binary_search(&function).is_ok() {
        return Some(Sameness::Same);
    }
    FRESH.binary_search(&function).is_ok().then_some(Sameness::Fresh)
}

pub(super) fn is_operator(name: &str) -> bool {
    OPERATORS.contains(&name)
}

pub(super) fn is_type(name: &TypeName) -> bool {
    !name.setof && !name.pct_type && own(&name.names).is_some_and(|name| of_type(name).is_some())
}

/// Of a type that cuts nothing off.
pub(super) fn type_oid(name: &TypeName) -> Option<u32> {
    own(&name.names).filter(|_| is_type(name) && name.typmods.is_empty()).and_then(of_type)
}

fn of_type(name: &str) -> Option<u32> {
    TYPES.iter().find(|(of, _)| *of == name).map(|(_, oid)| *oid)
}

/// As in src/include/catalog/pg_type.dat.
const TYPES: [(&str, u32); 46] = [
    ("bit", 1560),
    ("bool", 16),
    ("box", 603),
    ("bpchar", 1042),
    ("bytea", 17),
    ("char", 18),
    ("cidr", 650),
    ("circle", 718),
    ("date", 1082),
    ("daterange", 3912),
    ("float4", 700),
    ("float8", 701),
    ("inet", 869),
    ("int2", 21),
    ("int4", 23),
    ("int4range", 3904),
    ("int8", 20),
    ("int8range", 3926),
    ("interval", 1186),
    ("json", 114),
    ("jsonb", 3802),
    ("jsonpath", 4072),
    ("line", 628),
    ("lseg", 601),
    ("macaddr", 829),
    ("macaddr8", 774),
    ("money", 790),
    ("name", 19),
    ("numeric", 1700),
    ("numrange", 3906),
    ("oid", 26),
    ("path", 602),
    ("point", 600),
    ("polygon", 604),
    ("text", 25),
    ("time", 1083),
    ("timestamp", 1114),
    ("timestamptz", 1184),
    ("timetz", 1266),
    ("tsquery", 3615),
    ("tsrange", 3908),
    ("tstzrange", 3910),
    ("tsvector", 3614),
    ("uuid", 2950),
    ("varbit", 1562),
    ("varchar", 1043),
];

const OPERATORS: &[&str] = &[
    "=", "<>", "<", ">", "<=", ">=", "+", "-", "*", "/", "%", "^", "||", "~~", "~~*", "!~~", "!~~*", "~", "~*", "!~",
    "!~*", "->", "->>", "#>", "#>>", "@>", "<@", "&&", "?", "?|", "?&", "@@", "@?", "&", "|", "#", "<<", ">>", "<<=",
    ">>=", "#-", "-|-", "&<", "&>", "|/", "||/", "@", "<->", "^@",
];

const FRESH: &[&str] = &["clock_timestamp", "gen_random_uuid"];

const FUNCTIONS: &[&str] = &[
    "abs",
    "acos",
    "acosd",
    "age",
    "array_agg",
    "array_append",
    "array_cat",
    "array_dims",
    "array_fill",
    "array_length",
    "array_lower",
    "array_ndims",
    "array_position",
    "array_positions",
    "array_prepend",
    "array_remove",
    "array_replace",
    "array_to_json",
    "array_to_string",
    "array_upper",
    "ascii",
    "asin",
    "asind",
    "atan",
    "atan2",
    "atan2d",
    "atand",
    "avg",
    "bit_and",
    "bit_length",
    "bit_or",
    "bit_xor",
    "bool",
    "bool_and",
    "bool_or",
    "btrim",
    "cardinality",
    "cbrt",
    "ceil",
    "ceiling",
    "char_length",
    "character_length",
    "chr",
    "concat",
    "concat_ws",
    "convert_from",
    "convert_to",
    "corr",
    "cos",
    "cosd",
    "cosh",
    "cot",
    "count",
    "covar_pop",
    "covar_samp",
    "cume_dist",
    "date",
    "date_bin",
    "date_part",
    "date_trunc",
    "decode",
    "degrees",
    "dense_rank",
    "div",
    "encode",
    "every",
    "exp",
    "extract",
    "factorial",
    "first_value",
    "float8",
    "floor",
    "format",
    "gcd",
    "generate_series",
    "generate_subscripts",
    "get_bit",
    "get_byte",
    "initcap",
    "int4",
    "int8",
    "isempty",
    "isfinite",
    "json_agg",
    "json_array_elements",
    "json_array_elements_text",
    "json_array_length",
    "json_build_array",
    "json_build_object",
    "json_each",
    "json_each_text",
    "json_extract_path",
    "json_extract_path_text",
    "json_object",
    "json_object_agg",
    "json_object_keys",
    "json_strip_nulls",
    "json_typeof",
    "jsonb_agg",
    "jsonb_array_elements",
    "jsonb_array_elements_text",
    "jsonb_array_length",
    "jsonb_build_array",
    "jsonb_build_object",
    "jsonb_each",
    "jsonb_each_text",
    "jsonb_extract_path",
    "jsonb_extract_path_text",
    "jsonb_insert",
    "jsonb_object",
    "jsonb_object_agg",
    "jsonb_object_keys",
    "jsonb_path_exists",
    "jsonb_path_match",
    "jsonb_path_query",
    "jsonb_path_query_array",
    "jsonb_path_query_first",
    "jsonb_pretty",
    "jsonb_set",
    "jsonb_set_lax",
    "jsonb_strip_nulls",
    "jsonb_typeof",
    "justify_days",
    "justify_hours",
    "justify_interval",
    "lag",
    "last_value",
    "lcm",
    "lead",
    "left",
    "length",
    "like_escape",
    "ln",
    "log",
    "log10",
    "lower",
    "lower_inc",
    "lower_inf",
    "lpad",
    "ltrim",
    "make_date",
    "make_interval",
    "make_time",
    "make_timestamp",
    "make_timestamptz",
    "masklen",
    "max",
    "md5",
    "min",
    "mod",
    "mode",
    "network",
    "normalize",
    "now",
    "nth_value",
    "ntile",
    "numeric",
    "numnode",
    "octet_length",
    "overlaps",
    "overlay",
    "percent_rank",
    "percentile_cont",
    "percentile_disc",
    "phraseto_tsquery",
    "pi",
    "plainto_tsquery",
    "position",
    "power",
    "quote_literal",
    "quote_nullable",
    "radians",
    "range_agg",
    "range_merge",
    "rank",
    "regexp_match",
    "regexp_matches",
    "regexp_replace",
    "regexp_split_to_array",
    "regexp_split_to_table",
    "regr_slope",
    "repeat",
    "replace",
    "reverse",
    "right",
    "round",
    "row_number",
    "row_to_json",
    "rpad",
    "rtrim",
    "scale",
    "set_bit",
    "set_byte",
    "setweight",
    "sha224",
    "sha256",
    "sha384",
    "sha512",
    "sign",
    "similar_to_escape",
    "sin",
    "sind",
    "sinh",
    "split_part",
    "sqrt",
    "starts_with",
    "statement_timestamp",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "string_agg",
    "string_to_array",
    "string_to_table",
    "strip",
    "strpos",
    "substr",
    "substring",
    "sum",
    "tan",
    "tand",
    "tanh",
    "text",
    "timezone",
    "to_char",
    "to_date",
    "to_hex",
    "to_json",
    "to_jsonb",
    "to_number",
    "to_timestamp",
    "to_tsquery",
    "to_tsvector",
    "transaction_timestamp",
    "translate",
    "trim_array",
    "trim_scale",
    "trunc",
    "ts_headline",
    "ts_rank",
    "ts_rank_cd",
    "unnest",
    "upper",
    "upper_inc",
    "upper_inf",
    "var_pop",
    "var_samp",
    "varchar",
    "variance",
    "websearch_to_tsquery",
    "width_bucket",
];

#[cfg(test)]
mod tests {
    use super::*;
    use postgres::{Client, NoTls};
    use weir_pg::{Cluster, Installation, Options};

    #[test]
    fn lists_are_sorted() {
        assert!(FUNCTIONS.is_sorted() && FRESH.is_sorted());
    }

    /// None is one that changes something. Every release has them: another's function of the name would be called where PostgreSQL has none.
    #[test]
    fn they_are_postgresqls() {
        [14, 18].into_iter().for_each(of_release);
    }

    fn of_release(major: u32) {
        let installation = Installation::preferably(major, &|_| {}).unwrap();
        let hba = vec!["host all all 127.0.0.1/32 trust".to_owned()];
        let cluster = Cluster::start(&installation, Options { hba, ..Options::default() }).unwrap();
        let address = format!("host=127.0.0.1 port={} user=postgres", cluster.port());
        let mut client = Client::connect(&address, NoTls).unwrap();
        let mut known =
            |sql: &str| -> Vec<String> { client.query(sql, &[]).unwrap().iter().map(|row| row.get(0)).collect() };
        // One of `timezone` is volatile for no reason.
        let calm = known(
            "select proname::text from pg_proc where pronamespace = 'pg_catalog'::regnamespace and provolatile <> 'v'",
        );
        for function in FUNCTIONS {
            assert!(calm.iter().any(|name| name == function), "{function}");
        }
        assert!(!FRESH.iter().any(|function| calm.iter().any(|name| name == function)));
        let operators = known("select oprname::text from pg_operator");
        for operator in OPERATORS {
            assert!(operators.iter().any(|name| name == operator), "{operator}");
        }
        for (name, oid) in TYPES {
            let found = known(&format!("select oid::text from pg_type where typname = '{name}'"));
            assert_eq!(found, [oid.to_string()], "{name}");
        }
    }
}
