/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM nuksm

#if !defined(_TRACE_NUKSM_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_NUKSM_H

#include <linux/tracepoint.h>

/* Defined by mm/nuksm/, like what these events tell of. */
struct nuksm_ballot;

#define show_nuksm_reason(reason)			\
	__print_symbolic(reason,			\
			 { NUKSM_BY_HEAT, "hot" },	\
			 { NUKSM_BY_SPREAD, "spread" },	\
			 { NUKSM_BY_PRIORITY, "priority" },	\
			 { NUKSM_NO_ROOM, "no room" })

#define show_nuksm_heat(heat)				\
	__print_symbolic(heat,				\
			 { NUKSM_COLD, "cold" },	\
			 { NUKSM_LISTED, "listed" },	\
			 { NUKSM_TOUCHED, "touched" })

/**
 * nuksm_place - a mapping was, or is to be, merged with others
 *
 * @pfn:	the page that is there
 * @ballot:	who takes part
 * @reason:	what decided
 * @wins:	whether the page belongs on the newcomer's node
 */
TRACE_EVENT(nuksm_place,

	TP_PROTO(unsigned long pfn, const struct nuksm_ballot *ballot,
		 int reason, bool wins),

	TP_ARGS(pfn, ballot, reason, wins),

	TP_STRUCT__entry(
		__field(unsigned long,	pfn)
		__field(int,		page_nid)
		__field(int,		newcomer_nid)
		__field(u8,		heat)
		__field(s8,		nice)
		__field(bool,		outdone)
		__field(bool,		wins)
		__field(u32,		weight)
		__field(int,		reason)
	),

	TP_fast_assign(
		__entry->pfn		= pfn;
		__entry->page_nid	= ballot->page_nid;
		__entry->newcomer_nid	= ballot->newcomer.nid;
		__entry->heat		= ballot->newcomer.heat;
		__entry->nice		= ballot->newcomer.nice;
		__entry->outdone	= ballot->outdone;
		__entry->wins		= wins;
		__entry->weight		= ballot->weight;
		__entry->reason		= reason;
	),

	TP_printk("pfn %lu on node %d, newcomer on node %d (%s, nice %d), others %s and of weight %u: %s by %s",
		  __entry->pfn, __entry->page_nid, __entry->newcomer_nid,
		  show_nuksm_heat(__entry->heat), __entry->nice,
		  __entry->outdone ? "hotter" : "not hotter", __entry->weight,
		  __entry->wins ? "newcomer wins" : "page stays",
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

#endif /* _TRACE_NUKSM_H */

/* This part must be outside protection */
#include <trace/define_trace.h>
