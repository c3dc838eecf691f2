/*-------------------------------------------------------------------------
 *
 * parameters.c
 *	  Which parameters the session has set, and to what.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/ilist.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc_tables.h"

#include "weir.h"

/* The value of a parameter, whatever its type */
typedef struct ParameterValue
{
	enum config_type type;
	int			number;			/* bool, int, enum */
	double		real;
	char	   *string;			/* "" if it is not a string */
} ParameterValue;

/* A parameter the pooler has been told, and the value it knows */
typedef struct Told
{
	char	   *name;
	ParameterValue value;	/* with a copy of the string */
	bool		seen;			/* met in this round of comparing? */
} Told;

static Told *told = NULL;
static int	ntold = 0;
static int	told_size = 0;
static bool hides_value = false;	/* one is set whose value is secret */

static dlist_node *nondefault_head = NULL;	/* guc.c's guc_nondef_list */

static GucRealAssignHook prev_assign_seed = NULL;

/*
 * What parsing and planning read, and what it was at the last report.  What
 * PostgreSQL reports itself is among it: what is set for a transaction alone,
 * or taken back behind an error, is reported never.
 */
static const char *const read_names[] = {
	"DateStyle", "IntervalStyle", "TimeZone", "client_encoding",
	"standard_conforming_strings",
	"array_nulls", "backslash_quote", "bytea_output", "extra_float_digits",
	"lc_monetary", "role", "search_path", "timezone_abbreviations",
	"transform_null_equals", "xmlbinary", "xmloption"
};

static struct
{
	struct config_generic *record;	/* NULL where there is none */
	ParameterValue value;	/* with a copy of the string */
}			read_params[lengthof(read_names)];
static bool read_lost = false;	/* out of memory */


/*
 * Parameters
 */

/* Parameters that are none of the pooler's business, or told otherwise */
static bool
is_untold(const char *name)
{
	static const char *const untold[] = {
		"transaction_isolation", "transaction_read_only",
		"transaction_deferrable", "seed", "session_authorization",
		"is_superuser", "weir.report"
	};

	for (int i = 0; i < (int) lengthof(untold); i++)
		if (strcmp(name, untold[i]) == 0)
			return true;
	return false;
}

static ParameterValue
get_value(struct config_generic *record)
{
	ParameterValue v = {record->vartype, 0, 0, ""};

	switch (record->vartype)
	{
		case PGC_BOOL:
			v.number = *((struct config_bool *) record)->variable;
			break;
		case PGC_INT:
			v.number = *((struct config_int *) record)->variable;
			break;
		case PGC_ENUM:
			v.number = *((struct config_enum *) record)->variable;
			break;
		case PGC_REAL:
			v.real = *((struct config_real *) record)->variable;
			break;
		case PGC_STRING:

			/*
			 * SET SESSION AUTHORIZATION ends the role without resetting the
			 * parameter in some minor versions.  What counts is the role.
			 */
			if (strcmp(record->name, "role") == 0 &&
				!OidIsValid(GetCurrentRoleId()))
				v.string = "none";
			else if (*((struct config_string *) record)->variable != NULL)
				v.string = *((struct config_string *) record)->variable;
			break;
	}
	return v;
}

static bool
is_same(const ParameterValue *a, const ParameterValue *b)
{
	return a->type == b->type && a->number == b->number &&
		a->real == b->real && strcmp(a->string, b->string) == 0;
}

/* Write name=value, such that set_config() restores exactly this value */
static bool
write_value(struct config_generic *record, const ParameterValue *v)
{
	char		buf[64] = "";

	weir_message_begin("weir.set");
	weir_message_text(record->name, '=');
	weir_message_byte('=');
	switch (v->type)
	{
		case PGC_BOOL:
			weir_message_text(v->number ? "on" : "off", '\0');
			break;
		case PGC_INT:
			snprintf(buf, sizeof(buf), "%d", v->number);
			weir_message_text(buf, '\0');
			break;
		case PGC_REAL:
			snprintf(buf, sizeof(buf), "%.17g", v->real);
			weir_message_text(buf, '\0');
			break;
		case PGC_STRING:
			weir_message_text(v->string, '\0');
			break;
		case PGC_ENUM:
			{
				/* not config_enum_lookup_by_value, which may throw */
				const struct config_enum_entry *entry =
					((struct config_enum *) record)->options;

				while (entry->name != NULL && entry->val != v->number)
					entry++;
				if (entry->name == NULL)
					return false;
				weir_message_text(entry->name, '\0');
				break;
			}
	}
	return weir_message_end();
}

/*
 * Tell a parameter that the session has set, unless the pooler knows.
 * Returns false if that failed; then nothing has been told or remembered.
 */
static bool
tell_parameter(struct config_generic *record, int *cursor)
{
	Told	   *t = NULL;
	ParameterValue v;
	char	   *name = NULL;
	char	   *string;

	if (record->flags & GUC_SUPERUSER_ONLY)
	{
		hides_value = true;
		return true;
	}

	/*
	 * Go by name, for records come and go: a library replaces the
	 * placeholders of its parameters.  The order in which we meet them hardly
	 * changes, so look first behind the one found last.
	 */
	for (int i = 0; i < ntold && t == NULL; i++)
	{
		if (++*cursor >= ntold)
			*cursor = 0;
		if (pg_strcasecmp(told[*cursor].name, record->name) == 0)
			t = &told[*cursor];
	}
	if (t == NULL && is_untold(record->name))
		return true;

	v = get_value(record);
	if (t != NULL && is_same(&t->value, &v))
	{
		t->seen = true;
		return true;
	}

	/* All the memory first, so that it cannot fail halfway */
	if (t == NULL)
	{
		t = weir_make_room(told, ntold, &told_size, sizeof(Told));
		if (t == NULL)
			return false;
		told = t;
		name = strdup(record->name);
		if (name == NULL)
			return false;
	}
	string = strdup(v.string);
	if (string == NULL || !write_value(record, &v))
	{
		free(name);
		free(string);
		return false;
	}
	weir_message_send();

	if (name != NULL)
	{
		t = &told[ntold++];
		t->name = name;
	}
	else
		free(t->value.string);
	t->value = v;
	t->value.string = string;
	t->seen = true;
	return true;
}

/*
 * All parameters there are.  16 and later make an array for this, to be freed;
 * returns NULL if there is no memory for it.
 */
static struct config_generic **
all_parameters(int *n)
{
#if PG_VERSION_NUM >= 160000
	struct config_generic **volatile vars = NULL;

	PG_TRY();
	{
		vars = get_guc_variables(n);
	}
	PG_CATCH();
	{
		FlushErrorState();
	}
	PG_END_TRY();
	return vars;
#else
	*n = GetNumConfigOptions();
	return get_guc_variables();
#endif
}

/*
 * PostgreSQL 16 and later keep a list of the parameters that are not at
 * their defaults: a few dozen of several hundred, so it can be walked each
 * time.  Its head is static in guc.c.  But the list is circular, so any
 * record in it leads there: the head is the one node that is in no record.
 *
 * Without the head (the list is not what we believe it to be), all parameters
 * are looked at, but only when they may have changed.  So it is before 16.
 */
#if PG_VERSION_NUM >= 160000
static dlist_node *
find_nondefault_head(struct config_generic **vars, int nvars)
{
	dlist_node *head = NULL;
	dlist_node *node;
	int			n = 0;
	int			found = 0;

	/* Keep only those that should be in the list */
	for (int i = 0; i < nvars; i++)
		if (vars[i]->source != PGC_S_DEFAULT)
			vars[n++] = vars[i];
	if (n == 0)
		return NULL;

	node = &vars[0]->nondef_link;
	for (int step = 0; step <= n; step++)
	{
		int			i = 0;

		if (node == NULL || node->next == NULL || node->next->prev != node)
			return NULL;
		while (i < n && node != &vars[i]->nondef_link)
			i++;
		if (i < n)
			found++;
		else
			head = node;
		node = node->next;
	}
	/* Once round in n + 1 steps, n of them in records: one other is left */
	if (found != n || node != &vars[0]->nondef_link)
		return NULL;
	return head;
}
#endif

/*
 * What PostgreSQL tells itself, but for parameters of libraries: not every
 * server has loaded them when it says which it reports.
 */
static bool
is_told_anyway(const struct config_generic *record)
{
	return (record->flags & GUC_REPORT) && strchr(record->name, '.') == NULL;
}

/* Tell all parameters that have changed.  Returns false if that failed. */
bool
weir_tell_parameters(bool *hidden)
{
	bool		ok = true;
	int			cursor = -1;

#define TELL(record) \
	if ((record)->source == PGC_S_SESSION && !is_told_anyway(record)) \
		ok &= tell_parameter(record, &cursor)

	hides_value = false;
	for (int i = 0; i < ntold; i++)
		told[i].seen = false;

	if (nondefault_head != NULL)
	{
#if PG_VERSION_NUM >= 160000
		for (dlist_node *node = nondefault_head->next;
			 node != nondefault_head; node = node->next)
			TELL(dlist_container(struct config_generic, nondef_link, node));
#endif
	}
	else
	{
		int			nvars;
		struct config_generic **vars = all_parameters(&nvars);

		if (vars == NULL)
			return false;
		for (int i = 0; i < nvars; i++)
			TELL(vars[i]);
#if PG_VERSION_NUM >= 160000
		pfree(vars);
#endif
	}
#undef TELL

	/* After a failure we cannot know, but will come here again */
	for (int i = ntold - 1; ok && i >= 0; i--)
	{
		if (told[i].seen)
			continue;
		weir_message_begin("weir.reset");
		weir_message_text(told[i].name, '=');
		ok = weir_message_end();
		if (ok)
		{
			weir_message_send();
			free(told[i].name);
			free(told[i].value.string);
			told[i] = told[--ntold];
		}
	}
	*hidden = hides_value;
	return ok;
}

/* Is the look at them so cheap that it is taken each time? */
bool
weir_looks_each_time(void)
{
	return nondefault_head != NULL;
}

/*
 * A statement has ended.  The pooler may parse others behind it, in the same
 * transaction or batch, under what it has set, and prepare them elsewhere
 * later: has it left what they read as the pooler knows it?  It may be taken
 * back before the next report, so that is kept.
 */
void
weir_note_read(void)
{
	for (int i = 0; i < (int) lengthof(read_params); i++)
	{
		ParameterValue v;

		if (weir_notes.reads_otherwise || read_params[i].record == NULL)
			continue;
		v = get_value(read_params[i].record);
		weir_notes.reads_otherwise =
			read_lost || !is_same(&v, &read_params[i].value);
	}
}

/* All has been reported: this is what the pooler knows from now on */
void
weir_remember_read(void)
{
	weir_notes.reads_otherwise = false;
	read_lost = false;
	for (int i = 0; i < (int) lengthof(read_params); i++)
	{
		ParameterValue v;
		char	   *string;

		if (read_params[i].record == NULL)
			continue;
		v = get_value(read_params[i].record);
		if (read_params[i].value.string != NULL &&
			is_same(&v, &read_params[i].value))
			continue;
		string = strdup(v.string);
		if (string == NULL)
		{
			read_lost = true;
			continue;
		}
		free(read_params[i].value.string);
		read_params[i].value = v;
		read_params[i].value.string = string;
	}
}

/* SET seed does what setseed() does, however it is set */
static void
weir_assign_seed(double newval, void *extra)
{
	weir_notes.lasting++;
	if (prev_assign_seed)
		prev_assign_seed(newval, extra);
}

void
weir_init_parameters(void)
{
	int			nvars;
	struct config_generic **vars;

	vars = all_parameters(&nvars);
	if (vars == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
	for (int i = 0; i < nvars; i++)
	{
		if (strcmp(vars[i]->name, "seed") == 0)
		{
			struct config_real *seed = (struct config_real *) vars[i];

			prev_assign_seed = seed->assign_hook;
			seed->assign_hook = weir_assign_seed;
		}
		for (int r = 0; r < (int) lengthof(read_names); r++)
			if (strcmp(vars[i]->name, read_names[r]) == 0)
				read_params[r].record = vars[i];
	}
	weir_remember_read();
#if PG_VERSION_NUM >= 160000
	nondefault_head = find_nondefault_head(vars, nvars);
	pfree(vars);
#endif
}
