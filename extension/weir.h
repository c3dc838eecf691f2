/*-------------------------------------------------------------------------
 *
 * weir.h
 *	  What the files of the module share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef WEIR_H
#define WEIR_H

#include "datatype/timestamp.h"
#include "lib/stringinfo.h"
#include "nodes/pg_list.h"

#if PG_VERSION_NUM < 140000 || PG_VERSION_NUM >= 190000
#error "this module has been written for PostgreSQL 14 to 18"
#endif

/* What is known from hooks */
typedef struct Notes
{
	uint64		lasting;		/* events that may leave something for good */
	bool		listen_stale;	/* LISTEN or UNLISTEN seen */
	bool		params_stale;	/* parameters may have changed */
	bool		temp_held;		/* temporary objects, as of the last commit */
	bool		temp_stale;		/* ... but that is not to be trusted */
	bool		lost;			/* we have lost track for good */
	bool		reads_otherwise;	/* see weir_note_read */
} Notes;

extern Notes weir_notes;

/* messages.c */
extern void *weir_make_room(void *array, int n, int *size, size_t width);
extern void weir_message_begin(const char *name);
extern void weir_message_byte(char c);
extern void weir_message_text(const char *text, char also);
extern bool weir_message_end(void);
extern const char *weir_message_body(int *len);

/* weir.c */
extern bool weir_is_reporting(void);
extern void weir_start_if_wanted(void);
extern void weir_message_send(void);

/* parameters.c */
extern bool weir_tell_parameters(bool *hidden);
extern bool weir_looks_each_time(void);
extern void weir_note_read(void);
extern void weir_remember_read(void);
extern void weir_init_parameters(void);

/* channels.c */
extern void weir_note_channel(bool listens, const char *channel);
extern void weir_refuse_prepare(void);
extern void weir_end_channels(bool commits);
extern void weir_note_asks(void);
extern bool weir_tell_channels(bool *listening);
extern void weir_init_channels(void);

/* hooks.c */
extern bool weir_holds_prepared(void);
extern void weir_init_hooks(void);

/*
 * The pooler that runs beside the server
 */
typedef struct Child
{
	pid_t		pid;			/* 0: there is none */
	int			out;			/* what it says */
	int			notify;			/* what it tells a service manager */
	int			console;		/* where it was told a command */
	bool		ready;
	bool		reload;			/* it is to read its files again once it is ready */
	int			ending;			/* the signal that is to end it, 0: none */
	TimestampTz since;			/* when it was started, or told to end */
	char		line[8192];		/* what it has said of its next line */
	int			line_len;
} Child;

/* settings.c */
extern bool weir_enabled;
extern bool weir_standby;
extern int	weir_stop_timeout;
extern char *weir_program;
extern char *weir_database;
extern char *weir_config_file;
extern char *weir_server_host;
extern void weir_define_settings(void);
extern void weir_define_if_named(Node *stmt);
extern void weir_init_settings(void);
extern void weir_append_settings(StringInfo to, List *wanted, bool which);
extern void weir_append_fixed(StringInfo to);
extern bool weir_append_pair(StringInfo to, const char *name, const char *text,
							 bool of_user);
extern const char *weir_text_setting(const char *name);
extern int	weir_number_setting(const char *name);
extern const char *weir_boot_setting(const char *name);
extern bool weir_is_own_parameter(const char *name);

/* start.c */
extern const char *weir_folder(void);
extern const char *weir_file(const char *name);
extern bool weir_take_place(void);
extern void weir_start_worker_if_none(void);
extern void weir_init_start(void);

/* child.c */
extern void weir_end_orphan(void);
extern void weir_append_program(StringInfo to);
extern bool weir_start_child(Child *child, bool takes_over);
extern bool weir_hear_child(Child *child);
extern void weir_hear_notify(Child *child);
extern void weir_signal_child(Child *child, int signal);
extern bool weir_reap_child(Child *child, int *status);
extern void weir_end_child(Child *child, int milliseconds);

/*
 * files.c
 *
 * The entry where the pooler asks PostgreSQL about roles is for nobody else, as
 * the rules say that it is given.
 */
#define WEIR_LOOKUPS	"weir lookups"
extern bool weir_records_elsewhere;
extern bool weir_is_writable(const char *name);
extern void weir_query(const char *query);
extern char *weir_cell(uint64 row, int column);
extern bool weir_run_bool(const char *query);
extern void weir_append_quoted(StringInfo to, const char *text, char quote);
extern void weir_note_load_time(void);
extern bool weir_write_files(bool reloaded, TimestampTz *next, bool *reconnect);

/* ini.c */
extern void weir_append_ini(StringInfo to, bool reloaded);

/* console.c */
extern int	weir_tell_console(const char *command);

#endif							/* WEIR_H */
