-- What users' code hides from the texts that call it: a row for each name that a text may say, with a text that is run for it.
-- Names that have nothing behind them but data are not told. Extensions that leave nothing are left out.
WITH own AS (
    SELECT n.oid FROM pg_catalog.pg_namespace n
    WHERE n.nspname OPERATOR(pg_catalog.<>) ALL(E'{pg_catalog,information_schema,pg_toast}'::pg_catalog.name[])
        AND NOT pg_catalog.starts_with(n.nspname::pg_catalog.text, E'pg_temp_')
        AND NOT pg_catalog.starts_with(n.nspname::pg_catalog.text, E'pg_toast_temp_')
), harmless AS (
    SELECT d.objid FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_extension e ON e.oid OPERATOR(pg_catalog.=) d.refobjid
    WHERE d.classid OPERATOR(pg_catalog.=) E'pg_catalog.pg_proc'::pg_catalog.regclass
        AND d.refclassid OPERATOR(pg_catalog.=) E'pg_catalog.pg_extension'::pg_catalog.regclass
        AND d.deptype OPERATOR(pg_catalog.=) E'e'
        AND e.extname OPERATOR(pg_catalog.=) ANY(E'{btree_gin,btree_gist,citext,cube,fuzzystrmatch,hstore,intarray,ltree,pg_stat_statements,pgcrypto,pgstattuple,plpgsql,postgis,seg,tcn,unaccent,uuid-ossp,vector,xml2}'::pg_catalog.name[])
), code(name, body) AS (
    SELECT p.proname, CASE
        WHEN l.lanname OPERATOR(pg_catalog.=) ANY(E'{sql,plpgsql}'::pg_catalog.name[])
            THEN pg_catalog.concat_ws(E' ', p.prosrc, pg_catalog.pg_get_function_sqlbody(p.oid), pg_catalog.pg_get_expr(p.proargdefaults, 0))
        -- Its code is not told, but sets no parameter that has no definition.
        WHEN l.lanname OPERATOR(pg_catalog.=) ANY(E'{c,internal}'::pg_catalog.name[]) THEN E'call'
        ELSE E'execute' END
    FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid OPERATOR(pg_catalog.=) p.prolang
    WHERE p.pronamespace IN (SELECT oid FROM own) AND p.prokind OPERATOR(pg_catalog.<>) E'a'
        AND p.oid NOT IN (SELECT objid FROM harmless)
    UNION ALL
    SELECT p.proname, pg_catalog.concat_ws(E' ', a.aggtransfn, a.aggfinalfn, a.aggcombinefn, a.aggmtransfn, a.aggminvtransfn, a.aggmfinalfn)
    FROM pg_catalog.pg_aggregate a JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) a.aggfnoid::pg_catalog.oid
    WHERE p.pronamespace IN (SELECT oid FROM own)
    UNION ALL
    SELECT c.relname, pg_catalog.pg_get_triggerdef(t.oid)
    FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) t.tgrelid WHERE NOT t.tgisinternal
    UNION ALL
    SELECT c.relname, pg_catalog.pg_get_ruledef(r.oid)
    FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) r.ev_class WHERE c.relnamespace IN (SELECT oid FROM own)
    UNION ALL
    SELECT c.relname, pg_catalog.pg_get_expr(a.adbin, a.adrelid)
    FROM pg_catalog.pg_attrdef a JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) a.adrelid WHERE c.relnamespace IN (SELECT oid FROM own)
    UNION ALL
    SELECT COALESCE(c.relname, t.typname), pg_catalog.pg_get_constraintdef(k.oid)
    FROM pg_catalog.pg_constraint k LEFT JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) k.conrelid
        LEFT JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) k.contypid
    WHERE k.connamespace IN (SELECT oid FROM own) AND k.contype OPERATOR(pg_catalog.=) ANY(E'{c,f,x}'::pg_catalog."char"[])
    UNION ALL
    SELECT p.relname, pg_catalog.quote_ident(c.relname)
    FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) k.conrelid
        JOIN pg_catalog.pg_class p ON p.oid OPERATOR(pg_catalog.=) k.confrelid
    WHERE k.contype OPERATOR(pg_catalog.=) E'f'
    UNION ALL
    SELECT p.relname, pg_catalog.quote_ident(c.relname)
    FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) i.inhrelid
        JOIN pg_catalog.pg_class p ON p.oid OPERATOR(pg_catalog.=) i.inhparent
    UNION ALL
    SELECT c.relname, pg_catalog.concat_ws(E' ', pg_catalog.pg_get_expr(o.polqual, o.polrelid), pg_catalog.pg_get_expr(o.polwithcheck, o.polrelid))
    FROM pg_catalog.pg_policy o JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) o.polrelid
    UNION ALL
    SELECT c.relname, pg_catalog.pg_get_indexdef(x.indexrelid)
    FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) x.indrelid
    WHERE c.relnamespace IN (SELECT oid FROM own) AND (x.indexprs IS NOT NULL OR x.indpred IS NOT NULL)
    UNION ALL
    SELECT c.relname, pg_catalog.string_agg(pg_catalog.quote_ident(t.typname), E' ')
    FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) a.attrelid
        JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) a.atttypid
    WHERE t.typtype OPERATOR(pg_catalog.=) E'd' AND t.typnamespace IN (SELECT oid FROM own) AND a.attnum OPERATOR(pg_catalog.>) 0::pg_catalog.int2
    GROUP BY c.oid, c.relname
    UNION ALL
    -- No word of a text calls these: whatever they leave, any text may.
    SELECT E'', pg_catalog.quote_ident(p.proname)
    FROM pg_catalog.pg_operator o JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) o.oprcode::pg_catalog.oid
    WHERE o.oprnamespace IN (SELECT oid FROM own) AND p.pronamespace IN (SELECT oid FROM own)
    UNION ALL
    SELECT E'', pg_catalog.quote_ident(p.proname)
    FROM pg_catalog.pg_cast a JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) a.castfunc WHERE p.pronamespace IN (SELECT oid FROM own)
    UNION ALL
    SELECT w.word, pg_catalog.quote_ident(p.proname)
    FROM pg_catalog.pg_event_trigger e JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) e.evtfoid,
        pg_catalog.unnest(E'{create,alter,drop,comment,grant,revoke,security,reindex,refresh,import,reassign}'::pg_catalog.text[]) w(word)
)
SELECT name, CASE WHEN pg_catalog.octet_length(body) OPERATOR(pg_catalog.>) 60000 THEN E'execute' ELSE body END FROM code WHERE body IS NOT NULL
