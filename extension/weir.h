/*-------------------------------------------------------------------------
 *
 * weir.h
 *	  What the files of the module share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef WEIR_H
#define WEIR_H

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

#endif							/* WEIR_H */
