/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM nuksm

#if !defined(_TRACE_NUKSM_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_NUKSM_H

#include <linux/tracepoint.h>

/* Defined by mm/nuksm/, like what these events tell of. */
struct nuksm_ballot;

/* For programs that read events by their format. */
TRACE_DEFINE_ENUM(NUKSM_BY_HEAT);
TRACE_DEFINE_ENUM(NUKSM_BY_SPREAD);
TRACE_DEFINE_ENUM(NUKSM_BY_PRIORITY);
TRACE_DEFINE_ENUM(NUKSM_NO_ROOM);
TRACE_DEFINE_ENUM(NUKSM_UNSEEN);
TRACE_DEFINE_ENUM(NUKSM_COLD);
TRACE_DEFINE_ENUM(NUKSM_LISTED);
TRACE_DEFINE_ENUM(NUKSM_TOUCHED);

#define show_nuksm_reason(reason)			\
	__print_symbolic(reason,			\
			 { NUKSM_BY_HEAT, "hot" },	\
			 { NUKSM_BY_SPREAD, "spread" },	\
			 { NUKSM_BY_PRIORITY, "priority" },	\
			 { NUKSM_NO_ROOM, "no room" })

#define show_nuksm_heat(heat)				\
	__print_symbolic(heat,				\
			 { NUKSM_UNSEEN, "unseen" },	\
			 { NUKSM_COLD, "cold" },	\
			 { NUKSM_LISTED, "listed" },	\
			 { NUKSM_TOUCHED, "touched" })

/**
 * nuksm_place - it was decided where a page belongs that several nodes share
 *
 * @pfn:	the page; if it is not merged yet, one of two
 * @ballot:	who shares it
 * @reason:	what decided
 * @nid:	where it belongs
 */
TRACE_EVENT(nuksm_place,

	TP_PROTO(unsigned long pfn, const struct nuksm_ballot *ballot,
		 int reason, int nid),

	TP_ARGS(pfn, ballot, reason, nid),

	TP_STRUCT__entry(
		__field(unsigned long,	pfn)
		__field(int,		from)
		__field(int,		nid)
		__field(u8,		heat)
		__field(int,		nodes)
		__field(int,		hot_nodes)
		__field(int,		reason)
	),

	TP_fast_assign(
		__entry->pfn		= pfn;
		__entry->from		= pfn_to_nid(pfn);
		__entry->nid		= nid;
		__entry->heat		= ballot->hottest;
		__entry->nodes		= bitmap_weight(ballot->nodes, NUKSM_MOST_NODES);
		__entry->hot_nodes	= bitmap_weight(ballot->hot_nodes, NUKSM_MOST_NODES);
		__entry->reason		= reason;
	),

	TP_printk("pfn %lu on node %d belongs on node %d: shared by %d nodes, %s on %d of them, by %s",
		  __entry->pfn, __entry->from, __entry->nid, __entry->nodes,
		  show_nuksm_heat(__entry->heat), __entry->hot_nodes,
		  show_nuksm_reason(__entry->reason))
);

/**
 * nuksm_migrate - a merged page was moved, or could not be
 *
 * @pfn:	where it was
 * @from:	node it was on
 * @to:		node it was to go to
 * @err:	0 on success, the number of pages left behind, or an error
 */
TRACE_EVENT(nuksm_migrate,

	TP_PROTO(unsigned long pfn, int from, int to, int err),

	TP_ARGS(pfn, from, to, err),

	TP_STRUCT__entry(
		__field(unsigned long,	pfn)
		__field(int,		from)
		__field(int,		to)
		__field(int,		err)
	),

	TP_fast_assign(
		__entry->pfn	= pfn;
		__entry->from	= from;
		__entry->to	= to;
		__entry->err	= err;
	),

	TP_printk("pfn %lu from node %d to node %d: %d",
		  __entry->pfn, __entry->from, __entry->to, __entry->err)
);

/**
 * nuksm_replica - sharers of a merged page share another one of the same content now
 *
 * @pfn:	the page
 * @from:	node it is on
 * @to_pfn:	the other one
 * @to:		node that is on
 * @sharers:	how many
 */
TRACE_EVENT(nuksm_replica,

	TP_PROTO(unsigned long pfn, int from, unsigned long to_pfn, int to,
		 unsigned int sharers),

	TP_ARGS(pfn, from, to_pfn, to, sharers),

	TP_STRUCT__entry(
		__field(unsigned long,	pfn)
		__field(unsigned long,	to_pfn)
		__field(int,		from)
		__field(int,		to)
		__field(unsigned int,	sharers)
	),

	TP_fast_assign(
		__entry->pfn		= pfn;
		__entry->to_pfn		= to_pfn;
		__entry->from		= from;
		__entry->to		= to;
		__entry->sharers	= sharers;
	),

	TP_printk("%u sharers of pfn %lu on node %d to pfn %lu on node %d",
		  __entry->sharers, __entry->pfn, __entry->from,
		  __entry->to_pfn, __entry->to)
);

#endif /* _TRACE_NUKSM_H */

/* This part must be outside protection */
#include <trace/define_trace.h>
