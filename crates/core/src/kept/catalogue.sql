-- What users' code hides from the texts that call it: a row for each name that a text may say, with a text that is run for it.
-- Names that have nothing behind them but data are not told. Extensions that leave nothing are left out.
-- Expressions are read as PostgreSQL stores them, by the numbers of what they call: to have them written out takes locks on their tables.
SET LOCAL lock_timeout = 500;
-- Its plan looks costly enough to be compiled, which takes several times as long as it does.
SET LOCAL jit = off;
-- A user's own may be short; and where Weir would wait no longer, nobody works for it any more.
SET LOCAL statement_timeout = 9000;
SET LOCAL transaction_timeout = 0; -- since 17
WITH own AS (
    SELECT n.oid FROM pg_catalog.pg_namespace n
    -- Others' temporary objects may stand behind what is none.
    WHERE n.nspname OPERATOR(pg_catalog.<>) ALL(E'{pg_catalog,pg_toast}'::pg_catalog.name[])
), types AS (
    -- Users', in whichever schema. A temporary table's is mostly known by nobody but its owner.
    SELECT t.oid FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) t.typnamespace
    WHERE t.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid
        AND (t.typtype OPERATOR(pg_catalog.=) ANY(E'{d,m,r}'::pg_catalog."char"[]) OR NOT pg_catalog.starts_with(n.nspname::pg_catalog.text, E'pg_temp_')
            -- Or of what is no owner's alone: a column, an argument, a domain's base.
            OR EXISTS(SELECT FROM pg_catalog.pg_depend d WHERE d.refclassid OPERATOR(pg_catalog.=) E'pg_catalog.pg_type'::pg_catalog.regclass
                AND d.refobjid OPERATOR(pg_catalog.=) t.oid AND d.deptype OPERATOR(pg_catalog.=) E'n')
            OR EXISTS(SELECT FROM pg_catalog.pg_depend d WHERE d.refclassid OPERATOR(pg_catalog.=) E'pg_catalog.pg_type'::pg_catalog.regclass
                AND d.refobjid OPERATOR(pg_catalog.=) t.typarray AND d.deptype OPERATOR(pg_catalog.=) E'n'))
), harmless AS (
    SELECT d.objid FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_extension e ON e.oid OPERATOR(pg_catalog.=) d.refobjid
        JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) d.objid
    WHERE d.classid OPERATOR(pg_catalog.=) E'pg_catalog.pg_proc'::pg_catalog.regclass
        AND d.refclassid OPERATOR(pg_catalog.=) E'pg_catalog.pg_extension'::pg_catalog.regclass
        AND d.deptype OPERATOR(pg_catalog.=) E'e'
        -- Not what is added to one, or replaced: that is written in another language mostly, and read.
        AND (p.prolang OPERATOR(pg_catalog.=) ANY(E'{12,13}'::pg_catalog.oid[]) OR e.extname OPERATOR(pg_catalog.=) ANY(E'{postgis,timescaledb}'::pg_catalog.name[]))
        AND (e.extname OPERATOR(pg_catalog.=) ANY(E'{bloom,btree_gin,btree_gist,citext,cube,dict_int,dict_xsyn,earthdistance,file_fdw,fuzzystrmatch,h3,hstore,intagg,intarray,ip4r,isn,lo,ltree,pageinspect,pg_bigm,pg_buffercache,pg_freespacemap,pg_prewarm,pg_stat_statements,pg_trgm,pg_visibility,pg_walinspect,pgcrypto,pgrowlocks,pgstattuple,plpgsql,postgis,postgres_fdw,rum,seg,semver,sslinfo,tcn,tdigest,topn,tsm_system_rows,tsm_system_time,unaccent,uuid-ossp,vector}'::pg_catalog.name[])
            OR p.proname OPERATOR(pg_catalog.=) ANY(E'{approximate_row_count,interpolate,locf,time_bucket,time_bucket_gapfill,time_bucket_ng}'::pg_catalog.name[])
                AND e.extname OPERATOR(pg_catalog.=) E'timescaledb'
            -- Of its own type: without these each text that says `=` would be looked behind.
            OR p.proname OPERATOR(pg_catalog.~) E'^(cluster_clock_(in|out|recv|send|eq|ne|lt|le|gt|ge|cmp|logical))$'
                AND e.extname OPERATOR(pg_catalog.=) E'citus'
            OR p.proname OPERATOR(pg_catalog.=) E'normal_rand' AND e.extname OPERATOR(pg_catalog.=) E'tablefunc'
            OR p.proname OPERATOR(pg_catalog.<>) E'xpath_table' AND e.extname OPERATOR(pg_catalog.=) E'xml2')
        -- These set parameters, and PostGIS' makes a temporary table.
        AND p.proname OPERATOR(pg_catalog.<>) ALL(E'{set_limit,isn_weak,addauth}'::pg_catalog.name[])
), asked AS (
    -- Of a library: what texts do not name, operators, triggers, what reads types, is asked about after each call, and is no more than that.
    SELECT p.oid, E'call'::pg_catalog.text AS body FROM pg_catalog.pg_proc p
    WHERE p.prolang OPERATOR(pg_catalog.=) 13::pg_catalog.oid AND p.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid
        AND p.probin OPERATOR(pg_catalog.!~) E'dblink|pgxml|refint|tablefunc'
), tree(name, body) AS (
    SELECT p.proname, p.prosqlbody::pg_catalog.text FROM pg_catalog.pg_proc p WHERE p.prosqlbody IS NOT NULL UNION ALL -- since 14
    SELECT p.proname, p.proargdefaults::pg_catalog.text FROM pg_catalog.pg_proc p WHERE p.proargdefaults IS NOT NULL
    UNION ALL
    SELECT c.relname, t.tgqual::pg_catalog.text
    FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) t.tgrelid WHERE t.tgqual IS NOT NULL
    UNION ALL
    SELECT c.relname, pg_catalog.concat_ws(E' ', r.ev_action::pg_catalog.text, r.ev_qual::pg_catalog.text)
    FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) r.ev_class
    -- But for PostgreSQL's own in information_schema, where users may create some too.
    WHERE c.relnamespace IN (SELECT oid FROM own) AND c.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid
    UNION ALL
    SELECT c.relname, a.adbin::pg_catalog.text
    FROM pg_catalog.pg_attrdef a JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) a.adrelid WHERE c.relnamespace IN (SELECT oid FROM own)
    UNION ALL
    SELECT COALESCE(c.relname, t.typname), k.conbin::pg_catalog.text
    FROM pg_catalog.pg_constraint k LEFT JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) k.conrelid
        LEFT JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) k.contypid
    WHERE k.conbin IS NOT NULL AND (k.connamespace IN (SELECT oid FROM own) OR k.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid)
    UNION ALL
    SELECT t.typname, t.typdefaultbin::pg_catalog.text FROM pg_catalog.pg_type t WHERE t.typdefaultbin IS NOT NULL AND t.oid IN (SELECT oid FROM types)
    UNION ALL
    SELECT c.relname, pg_catalog.concat_ws(E' ', o.polqual::pg_catalog.text, o.polwithcheck::pg_catalog.text)
    FROM pg_catalog.pg_policy o JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) o.polrelid
    UNION ALL
    SELECT c.relname, pg_catalog.concat_ws(E' ', x.indexprs::pg_catalog.text, x.indpred::pg_catalog.text)
    FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) x.indrelid
    WHERE c.relnamespace IN (SELECT oid FROM own) AND (x.indexprs IS NOT NULL OR x.indpred IS NOT NULL)
    UNION ALL
    SELECT c.relname, s.stxexprs::pg_catalog.text FROM pg_catalog.pg_statistic_ext s JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) s.stxrelid WHERE s.stxexprs IS NOT NULL UNION ALL -- since 14
    SELECT c.relname, g.partexprs::pg_catalog.text
    FROM pg_catalog.pg_partitioned_table g JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) g.partrelid WHERE g.partexprs IS NOT NULL
), names AS (
    -- What an expression calls, and whatever else is a number of users' tables and types, wherever it stands.
    SELECT tree.name, f.part[1] AS field, f.part[2]::pg_catalog.int8 AS id FROM tree,
        pg_catalog.regexp_matches(tree.body, E':(funcid|opfuncid|aggfnoid|winfnoid) ([1-9][0-9]{0,9})(?![0-9])', E'g') f(part)
    UNION
    SELECT tree.name, E'number', f.part[1]::pg_catalog.int8 FROM tree,
        pg_catalog.regexp_matches(tree.body, E'[ (]([1-9][0-9]{4,9})(?![0-9])', E'g') f(part)
), code(name, body) AS (
    SELECT p.proname, CASE
        -- A setting of its own is taken back at its end, but for this one.
        WHEN EXISTS(SELECT FROM pg_catalog.unnest(p.proconfig) c(setting) WHERE pg_catalog.lower(c.setting) OPERATOR(pg_catalog.~~) E'seed=%') THEN E'execute'
        -- A letter beyond ASCII that a database may take for an i (`lowers_to_ascii`).
        WHEN pg_catalog.getdatabaseencoding() OPERATOR(pg_catalog.=) ANY(E'{LATIN3,LATIN5,SQL_ASCII,WIN1254}'::pg_catalog.name[])
            AND CASE pg_catalog.getdatabaseencoding()
                -- By any locale.
                WHEN E'SQL_ASCII' THEN p.prosrc OPERATOR(pg_catalog.~) E'[^\\x01-\\x7f]'
                ELSE pg_catalog.strpos(p.prosrc, pg_catalog.chr(CASE pg_catalog.getdatabaseencoding() WHEN E'LATIN3' THEN 169 WHEN E'LATIN5' THEN 221 WHEN E'WIN1254' THEN 221 ELSE 1 END)) OPERATOR(pg_catalog.>) 0 END THEN E'execute'
        -- Marked: there INTO creates a table.
        WHEN l.lanname OPERATOR(pg_catalog.=) E'sql' THEN pg_catalog.concat(E'\x01', p.prosrc)
        WHEN l.lanname OPERATOR(pg_catalog.=) E'plpgsql' THEN p.prosrc
        -- One of PostgreSQL's own by another name, as the constructors of ranges are.
        WHEN l.lanname OPERATOR(pg_catalog.=) E'internal' THEN COALESCE((
            SELECT pg_catalog.string_agg(b.proname::pg_catalog.text, E' ') FROM pg_catalog.pg_proc b
            WHERE b.prolang OPERATOR(pg_catalog.=) p.prolang AND b.prosrc OPERATOR(pg_catalog.=) p.prosrc AND b.oid OPERATOR(pg_catalog.<) 16384::pg_catalog.oid
        ), E'execute')
        -- Its code is not told: it may run a text that it is given, as those of tablefunc do.
        ELSE E'execute' END
    FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid OPERATOR(pg_catalog.=) p.prolang
    -- Numbers from there on are users' (`FirstNormalObjectId`), whatever the schema.
    WHERE (p.pronamespace IN (SELECT oid FROM own) OR p.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid
            -- PostgreSQL's own may be replaced.
            OR l.lanname OPERATOR(pg_catalog.=) ANY(E'{sql,plpgsql}'::pg_catalog.name[])) AND p.prokind OPERATOR(pg_catalog.<>) E'a'
        AND p.oid NOT IN (SELECT objid FROM harmless)
    UNION ALL
    SELECT n.name, pg_catalog.string_agg(DISTINCT pg_catalog.quote_ident(p.proname), E' ')
    FROM names n JOIN pg_catalog.pg_proc p ON p.oid::pg_catalog.int8 OPERATOR(pg_catalog.=) n.id
    WHERE n.field OPERATOR(pg_catalog.<>) E'number' AND p.oid NOT IN (SELECT objid FROM harmless) GROUP BY n.name
    UNION ALL
    SELECT n.name, pg_catalog.string_agg(DISTINCT pg_catalog.quote_ident(c.relname), E' ')
    FROM names n JOIN pg_catalog.pg_class c ON c.oid::pg_catalog.int8 OPERATOR(pg_catalog.=) n.id GROUP BY n.name
    UNION ALL
    SELECT n.name, pg_catalog.string_agg(DISTINCT pg_catalog.quote_ident(t.typname), E' ')
    FROM names n JOIN pg_catalog.pg_type t ON t.oid::pg_catalog.int8 OPERATOR(pg_catalog.=) n.id WHERE t.oid IN (SELECT oid FROM types) GROUP BY n.name
    UNION ALL
    SELECT p.proname, COALESCE(k.body, pg_catalog.quote_ident(f.proname))
    FROM pg_catalog.pg_aggregate a JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) a.aggfnoid::pg_catalog.oid
        JOIN pg_catalog.pg_proc f ON f.oid OPERATOR(pg_catalog.=) ANY(ARRAY[a.aggtransfn, a.aggfinalfn, a.aggcombinefn, a.aggmtransfn, a.aggminvtransfn, a.aggmfinalfn]::pg_catalog.oid[])
        LEFT JOIN asked k ON k.oid OPERATOR(pg_catalog.=) f.oid
    WHERE (p.pronamespace IN (SELECT oid FROM own) OR p.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid) AND f.oid NOT IN (SELECT objid FROM harmless)
    UNION ALL
    SELECT c.relname, COALESCE(k.body, pg_catalog.quote_ident(p.proname))
    FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) t.tgrelid
        JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) t.tgfoid LEFT JOIN asked k ON k.oid OPERATOR(pg_catalog.=) p.oid
    WHERE NOT t.tgisinternal AND p.oid NOT IN (SELECT objid FROM harmless)
    UNION ALL
    SELECT p.relname, pg_catalog.quote_ident(c.relname)
    FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) k.conrelid
        JOIN pg_catalog.pg_class p ON p.oid OPERATOR(pg_catalog.=) k.confrelid
    WHERE k.contype OPERATOR(pg_catalog.=) E'f'
    UNION ALL
    -- What a function takes and returns.
    SELECT p.proname, pg_catalog.string_agg(DISTINCT pg_catalog.quote_ident(t.typname), E' ')
    FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) p.prorettype
        OR t.oid OPERATOR(pg_catalog.=) ANY(p.proargtypes::pg_catalog.oid[]) OR t.oid OPERATOR(pg_catalog.=) ANY(p.proallargtypes)
    WHERE p.pronamespace IN (SELECT oid FROM own) AND t.oid IN (SELECT oid FROM types) GROUP BY p.oid, p.proname
    UNION ALL
    -- A partition has its parent's key.
    SELECT c.relname, pg_catalog.quote_ident(p.relname)
    FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) i.inhrelid
        JOIN pg_catalog.pg_class p ON p.oid OPERATOR(pg_catalog.=) i.inhparent WHERE c.relispartition
    UNION ALL
    SELECT p.relname, pg_catalog.quote_ident(c.relname)
    FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) i.inhrelid
        JOIN pg_catalog.pg_class p ON p.oid OPERATOR(pg_catalog.=) i.inhparent
    UNION ALL
    -- A table or a composite type of columns that have something behind their types.
    SELECT c.relname, pg_catalog.string_agg(DISTINCT pg_catalog.quote_ident(t.typname), E' ')
    FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) a.attrelid
        JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) a.atttypid
    WHERE t.oid IN (SELECT oid FROM types) AND a.attnum OPERATOR(pg_catalog.>) 0::pg_catalog.int2
    GROUP BY c.oid, c.relname
    UNION ALL
    -- A domain over another, and an array.
    SELECT t.typname, pg_catalog.quote_ident(b.typname)
    FROM pg_catalog.pg_type t JOIN pg_catalog.pg_type b ON b.oid OPERATOR(pg_catalog.=) ANY(ARRAY[t.typbasetype, t.typelem])
    WHERE b.oid IN (SELECT oid FROM types)
    UNION ALL
    -- A range.
    SELECT t.typname, pg_catalog.quote_ident(b.typname)
    FROM pg_catalog.pg_range r JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) r.rngtypid
        JOIN pg_catalog.pg_type b ON b.oid OPERATOR(pg_catalog.=) r.rngsubtype WHERE b.oid IN (SELECT oid FROM types)
    UNION ALL
    SELECT t.typname, pg_catalog.quote_ident(b.typname) FROM pg_catalog.pg_range r JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) r.rngmultitypid JOIN pg_catalog.pg_type b ON b.oid OPERATOR(pg_catalog.=) r.rngtypid WHERE b.oid IN (SELECT oid FROM types) UNION ALL -- since 14
    SELECT t.typname, COALESCE(k.body, pg_catalog.quote_ident(f.proname))
    FROM pg_catalog.pg_range r JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) r.rngtypid
        JOIN pg_catalog.pg_proc f ON f.oid OPERATOR(pg_catalog.=) ANY(ARRAY[r.rngcanonical, r.rngsubdiff]::pg_catalog.oid[])
        LEFT JOIN asked k ON k.oid OPERATOR(pg_catalog.=) f.oid
    WHERE t.oid IN (SELECT oid FROM types) AND f.oid NOT IN (SELECT objid FROM harmless)
    UNION ALL
    -- The types that a Parse declares by their numbers alone (`type_word`).
    SELECT pg_catalog.concat(E' ', t.oid), pg_catalog.quote_ident(t.typname)
    FROM pg_catalog.pg_type t WHERE t.oid IN (SELECT oid FROM types)
    UNION ALL
    -- What reads and writes a type.
    SELECT t.typname, COALESCE(k.body, pg_catalog.quote_ident(f.proname))
    FROM pg_catalog.pg_type t
        JOIN pg_catalog.pg_proc f ON f.oid OPERATOR(pg_catalog.=) ANY(ARRAY[t.typinput, t.typoutput, t.typreceive, t.typsend, t.typmodin]::pg_catalog.oid[])
        LEFT JOIN asked k ON k.oid OPERATOR(pg_catalog.=) f.oid
    WHERE t.oid IN (SELECT oid FROM types) AND t.typtype OPERATOR(pg_catalog.=) E'b' AND f.oid NOT IN (SELECT objid FROM harmless)
        AND t.typelem OPERATOR(pg_catalog.=) 0::pg_catalog.oid
    UNION ALL
    -- No word of a text calls these: whatever they leave, any text may.
    SELECT E'', COALESCE(k.body, pg_catalog.quote_ident(p.proname))
    FROM pg_catalog.pg_operator o JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) o.oprcode::pg_catalog.oid
        LEFT JOIN asked k ON k.oid OPERATOR(pg_catalog.=) p.oid
    WHERE o.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid AND p.oid NOT IN (SELECT objid FROM harmless)
    UNION ALL
    SELECT E'', COALESCE(k.body, pg_catalog.quote_ident(p.proname))
    FROM pg_catalog.pg_amproc m JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) m.amproc::pg_catalog.oid
        LEFT JOIN asked k ON k.oid OPERATOR(pg_catalog.=) p.oid
    WHERE m.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid AND p.oid NOT IN (SELECT objid FROM harmless)
    UNION ALL
    SELECT E'', COALESCE(k.body, pg_catalog.quote_ident(p.proname))
    FROM pg_catalog.pg_cast a JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) a.castfunc
        LEFT JOIN asked k ON k.oid OPERATOR(pg_catalog.=) p.oid
    WHERE a.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid AND p.oid NOT IN (SELECT objid FROM harmless)
        -- A range has one of its own.
        AND p.prosrc OPERATOR(pg_catalog.<>) E'multirange_constructor1'
    UNION ALL
    SELECT w.word, pg_catalog.quote_ident(p.proname)
    FROM pg_catalog.pg_event_trigger e JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) e.evtfoid,
        pg_catalog.unnest(E'{create,alter,drop,comment,grant,revoke,security,reindex,refresh,import,reassign,into}'::pg_catalog.text[]) w(word)
    UNION ALL
    SELECT w.word, pg_catalog.quote_ident(p.proname)
    FROM pg_catalog.pg_foreign_data_wrapper e JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) e.fdwvalidator,
        pg_catalog.unnest(E'{create,alter,import}'::pg_catalog.text[]) w(word)
    WHERE p.oid NOT IN (SELECT objid FROM harmless) AND p.prolang OPERATOR(pg_catalog.<>) 13::pg_catalog.oid
    UNION ALL
    -- What looks at the code of a function that is created.
    SELECT E'create', COALESCE(k.body, pg_catalog.quote_ident(p.proname))
    FROM pg_catalog.pg_language e JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) e.lanvalidator
        LEFT JOIN asked k ON k.oid OPERATOR(pg_catalog.=) p.oid
    WHERE p.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid AND p.oid NOT IN (SELECT objid FROM harmless)
    UNION ALL
    -- What runs when a session begins, since 17.
    SELECT E' login', pg_catalog.quote_ident(p.proname)
    FROM pg_catalog.pg_event_trigger e JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) e.evtfoid WHERE e.evtevent OPERATOR(pg_catalog.=) E'login'
)
-- As the database has it, in ASCII: by the client_encoding that the database or the role has by default it may be other text, or none.
SELECT pg_catalog.encode(pg_catalog.convert_to(name::pg_catalog.text, pg_catalog.getdatabaseencoding()), E'base64'),
    pg_catalog.encode(pg_catalog.convert_to(CASE WHEN pg_catalog.octet_length(body) OPERATOR(pg_catalog.>) 46000 THEN E'execute' ELSE body END, pg_catalog.getdatabaseencoding()), E'base64')
FROM code WHERE body IS NOT NULL
