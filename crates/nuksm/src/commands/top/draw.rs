// SPDX-License-Identifier: GPL-2.0-only
//! The screen. Nothing is said by colour alone.

use super::detail;
use super::help;
use super::replay::Replay;
use super::state::{Mode, Sort, State, saved_bytes};
use super::style::{cut, number, right, strong};
use crate::shared::output::{bytes, date, known, percent};
use crate::shared::sample::{NodeRow, Sample, TenantRow};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Sparkline, Table, TableState, Wrap};

/// Nodes that are shown at the most; `nuksm status` has all.
const NODES: usize = 8;
/// Rows the header takes, and one more where there is something to say of use.
const HEADER: u16 = 4;
/// Rows that charts take, their titles included, on a screen so high or higher.
const CHARTS: [(u16, u16); 2] = [(36, 8), (18, 4)];
/// Columns of tenants, besides the name.
const PID: u16 = 7;
const NODE: u16 = 4;
const SAVED: u16 = 10;
const MAPPED: u16 = 9;
const REMOTE: u16 = 10;
const COST: u16 = 8;
/// From this width on tenants have all columns.
const WIDE: u16 = 72;

/// Draws everything.
pub fn draw(frame: &mut Frame, state: &State) {
    let used = state.look.as_ref().and_then(|look| used(state, &look.sample));
    let header_rows = HEADER + u16::from(used.is_some());
    let [header, body, footer] =
        Layout::vertical([Constraint::Length(header_rows), Constraint::Fill(1), Constraint::Length(1)])
            .areas(frame.area());
    draw_footer(frame, state, footer);
    let Some(look) = &state.look else {
        frame.render_widget(Line::from("looking at all mergeable memory …"), header);
        return;
    };
    draw_header(frame, state, &look.sample, used, header);
    if state.mode == Mode::Help {
        help::draw(frame, body);
        return;
    }
    if let Some(pid) = state.open {
        detail::draw(frame, state, pid, body);
        return;
    }
    let nodes = look.sample.nodes.as_deref().unwrap_or_default();
    let rows = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
    let node_rows = if nodes.is_empty() { 0 } else { rows(nodes.len().min(NODES)) + 1 };
    let height = frame.area().height;
    let chart_rows = CHARTS.iter().find(|(least, _)| height >= *least).map_or(0, |(_, rows)| *rows);
    let [charts, places, tenants] = Layout::vertical([
        Constraint::Length(chart_rows),
        Constraint::Length(node_rows),
        Constraint::Fill(1),
    ])
    .areas(body);
    if chart_rows > 0 {
        draw_charts(frame, state, charts);
    }
    draw_nodes(frame, nodes, state.colour, places);
    if let Some(rows) = &look.sample.tenants {
        draw_tenants(frame, state, rows.len(), tenants);
    } else {
        let paragraph = Paragraph::new(why_no_tenants(state, &look.sample)).wrap(Wrap { trim: true });
        frame.render_widget(paragraph, tenants);
    }
}

fn why_no_tenants(state: &State, sample: &Sample) -> String {
    let notes = sample.notes.join("\n");
    match (&state.replay, notes.is_empty()) {
        (None, _) => notes,
        (Some(_), false) => format!("as it was recorded: {notes}"),
        (Some(_), true) => "nodes and tenants are not in this recording: it was made with --counters".into(),
    }
}

/// Which part of use is local, and what replicas take for it; `None` where the kernel has no
/// engine, or does not tell this user.
fn used(state: &State, sample: &Sample) -> Option<String> {
    let engine = sample.engine.as_ref()?;
    let replicas = engine.replicas();
    engine.used_local.or(replicas)?;
    let local = state.used_locally.map_or_else(|| "-".into(), |part| format!("{:.1}", part * 100.0));
    let size = sample.replica_bytes.map(|size| bytes(i64::try_from(size).unwrap_or(i64::MAX)));
    Some(format!("used   {local} % locally; {} replicas take {}", known(replicas), known(size)))
}

fn draw_header(frame: &mut Frame, state: &State, sample: &Sample, used: Option<String>, area: Rect) {
    let ksm = &sample.ksm;
    let doing = match ksm.run {
        Some(0) => "KSM is stopped",
        Some(1) => "KSM is merging",
        Some(2) => "KSM has un-merged everything",
        _ => "KSM in an unknown state",
    };
    let size = |value: u64| bytes(i64::try_from(value).unwrap_or(i64::MAX));
    let savings = &sample.savings;
    let share = state.ksmd_share.map_or_else(|| "-".into(), |share| format!("{:.1}", share * 100.0));
    let worth = match sample.ksmd_cpu_seconds {
        Some(seconds) if seconds > 0.0 => {
            // Far below the limits of the type.
            #[allow(clippy::cast_possible_truncation)]
            let per_second = (saved_bytes(sample) as f64 / seconds) as i64;
            format!("; saves {} per second of it", bytes(per_second))
        }
        _ => String::new(),
    };
    let rate = known(state.history.back().and_then(|moment| moment.pages_per_second));
    let scan = sample.full_scan_seconds().map_or_else(|| "-".into(), |time| format!("{time:.1} s"));
    let what = match &state.replay {
        None => format!("nuksm on {}: {doing}, every {} s", state.host, state.interval.as_secs()),
        Some(replay) => format!(
            "recording of {}, {} UTC, {}/{}: {doing}",
            state.host,
            date(sample.unix_time),
            replay.shown(),
            replay.count()
        ),
    };
    let fit = |line| cut(line, area.width);
    let mut lines = vec![
        Line::styled(fit(format!("{what}, Linux {}", sample.kernel)), strong()),
        Line::from(fit(format!(
            "saved  {} net = {} + {} zero pages - {} records",
            savings.net_saved_bytes.map_or_else(|| "-".into(), bytes),
            size(savings.saved_bytes),
            size(savings.zero_page_saved_bytes),
            savings.metadata_bytes.map_or_else(|| "-".into(), size),
        ))),
        Line::from(fit(format!("ksmd   {share} % of a CPU{worth}"))),
        Line::from(fit(format!(
            "scan   {rate} pages/s, {} full scans, one takes {scan} at least",
            known(ksm.full_scans)
        ))),
    ];
    lines.extend(used.map(|used| Line::from(fit(used))));
    frame.render_widget(Text::from(lines), area);
}

/// Savings and scan rate over time, the newest at the right.
fn draw_charts(frame: &mut Frame, state: &State, area: Rect) {
    let [left, _, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(2), Constraint::Fill(1)]).areas(area);
    let saved: Vec<u64> = state.history.iter().map(|moment| moment.saved_bytes).collect();
    let rates = || state.history.iter().map(|moment| moment.pages_per_second);
    let scanned: Vec<u64> = rates().map(Option::unwrap_or_default).collect();
    let saved_most = saved.iter().copied().max().unwrap_or(0);
    let saved_most = bytes(i64::try_from(saved_most).unwrap_or(i64::MAX));
    let scanned_most = known(rates().flatten().max());
    draw_chart(frame, &format!("saved, at most {saved_most}"), &saved, left);
    draw_chart(frame, &format!("scanned, at most {scanned_most} pages/s"), &scanned, right);
}

fn draw_chart(frame: &mut Frame, title: &str, values: &[u64], area: Rect) {
    let [heading, chart] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Line::styled(cut(title.to_owned(), heading.width), strong()), heading);
    let shown = &values[values.len().saturating_sub(chart.width.into())..];
    let most = values.iter().copied().max().unwrap_or(0);
    // It multiplies what it is given.
    let unit = (most >> 32) + 1;
    let heights = shown.iter().map(|value| value / unit);
    frame.render_widget(Sparkline::default().data(heights).max((most / unit).max(1)), chart);
}

/// A row per node, with a bar of local and remote uses.
fn draw_nodes(frame: &mut Frame, nodes: &[NodeRow], colour: bool, area: Rect) {
    const FIXED: u16 = 5 + 12 + 2 + 9 + 16;
    let width = usize::from(area.width.saturating_sub(FIXED));
    let mut lines = vec![Line::styled(
        format!(
            "{:<5}{:>12}  {:width$}{:>9}{:>16}",
            "node", "merged pages", "█ here ░ away", "here %", "free"
        ),
        strong(),
    )];
    for row in nodes.iter().take(NODES) {
        let all = row.local_mappings.saturating_add(row.remote_mappings);
        let part = |count: u64| {
            let cells = (count as f64 * width as f64 / all.max(1) as f64).round();
            // Between 0 and the width of the screen.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            (cells as usize).min(width)
        };
        let local = part(row.local_mappings);
        let remote = if all == 0 { 0 } else { width - local };
        let free = bytes(i64::try_from(row.free_bytes).unwrap_or(i64::MAX));
        lines.push(Line::from(vec![
            Span::raw(format!("{:<5}{:>12}  ", cut(row.node.to_string(), 4), number(row.merged_pages, 12))),
            Span::styled("█".repeat(local), tint(colour, Color::Green)),
            Span::styled("░".repeat(remote), tint(colour, Color::Yellow)),
            Span::raw(" ".repeat(width - local - remote)),
            Span::raw(format!("{:>9}{free:>16}", percent(row.local_mappings, all))),
        ]));
    }
    frame.render_widget(Text::from(lines), area);
}

fn tint(colour: bool, tint: Color) -> Style {
    if colour { Style::new().fg(tint) } else { Style::new() }
}

/// All tenants in the order asked for; the selected one is in sight.
fn draw_tenants(frame: &mut Frame, state: &State, count: usize, area: Rect) {
    if count == 0 {
        frame.render_widget(Line::from("no process has mergeable memory: `nuksm doctor` says why"), area);
        return;
    }
    let is_wide = area.width >= WIDE;
    let head = |sort: Sort, name: &str| {
        let mark = if state.reversed { '▲' } else { '▼' };
        if state.sort == sort { format!("{name} {mark}") } else { name.to_owned() }
    };
    let shown = state.tenants().len();
    let tenants = if state.filter.is_empty() {
        format!("tenant ({count})")
    } else {
        format!("tenant ({shown}/{count})")
    };
    let mut heading = vec![
        Cell::from(head(Sort::Name, &tenants)),
        right("pid", PID),
        right("node", NODE),
        right(head(Sort::Savings, "saved"), SAVED),
        right(head(Sort::Remote, "remote %"), REMOTE),
        right(head(Sort::Cost, "cost"), COST),
    ];
    let mut widths = vec![PID, NODE, SAVED, REMOTE, COST];
    if is_wide {
        heading.insert(4, right("mapped", MAPPED));
        widths.insert(3, MAPPED);
    }
    let cells = |row: &TenantRow| {
        let mut cells = vec![
            Cell::from(row.name.clone()),
            right(row.pid.to_string(), PID),
            right(known(row.node), NODE),
            right(bytes(i64::try_from(row.saved_bytes).unwrap_or(i64::MAX)), SAVED),
            right(percent(row.remote_mappings, row.merged_mappings), REMOTE),
            right(known(row.tracked_pages.map(|pages| number(pages, COST))), COST),
        ];
        if is_wide {
            cells.insert(4, right(number(row.merged_mappings, MAPPED), MAPPED));
        }
        Row::new(cells)
    };
    let rows: Vec<Row> = state.tenants().into_iter().map(cells).collect();
    let widths = [Constraint::Fill(1)].into_iter().chain(widths.into_iter().map(Constraint::Length));
    let table = Table::new(rows, widths)
        .header(Row::new(heading).style(strong()))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .highlight_symbol("> ");
    let mut selection = TableState::new().with_selected(state.selected().map(|(row, _)| row));
    frame.render_stateful_widget(table, area, &mut selection);
}

/// What went wrong, else which keys there are.
fn draw_footer(frame: &mut Frame, state: &State, area: Rect) {
    let line = match (&state.trouble, state.open) {
        _ if state.mode == Mode::Filter => {
            Line::from(format!("filter: {}_  Enter keep  Esc drop", state.filter))
        }
        (Some(trouble), _) => {
            Line::styled(format!("! {trouble}: trying again"), tint(state.colour, Color::Red).patch(strong()))
        }
        _ if state.mode == Mode::Help => Line::from("Esc or ? back"),
        (None, Some(_)) => Line::from("Esc back  ↑↓ next tenant  q quit"),
        (None, None) if !state.filter.is_empty() => {
            Line::from(format!("filter: {}  / change  Esc drop  ? help  q quit", state.filter))
        }
        (None, None) if state.replay.as_ref().is_some_and(Replay::is_paused) => {
            Line::from("paused: Space go on  → next sample  ? help  q quit")
        }
        (None, None) if state.replay.is_some() => {
            Line::from("Space pause  → next sample  / filter  ? help  q quit")
        }
        (None, None) => Line::from("? help / filter sort s saved r remote c cost n name  q quit"),
    };
    frame.render_widget(line, area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::top::replay::tests::recording;
    use crate::commands::top::state::Action;
    use crate::commands::top::state::tests::{look, state};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::time::{Duration, Instant};

    /// The screen as text, of a size.
    fn screen(state: &State, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |row: u16| (0..width).map(|column| buffer[(column, row)].symbol()).collect::<String>();
        (0..height).map(|row| format!("{}\n", line(row).trim_end())).collect()
    }

    #[test]
    fn the_screen_at_80_by_24() {
        let expected = "\
nuksm on big: KSM is merging, every 2 s, Linux 6.12.0
saved  23.4 KiB net = 16.0 KiB + 8.0 KiB zero pages - 0.6 KiB records
ksmd   12.5 % of a CPU; saves 13.4 KiB per second of it
scan   300 pages/s, 12 full scans, one takes 0.2 s at least
saved, at most 23.4 KiB                  scanned, at most 300 pages/s
██                                        █
██                                        █
██                                        █
node merged pages  █ here ░ away                          here %            free
0               2  ██████████████████░░░░░░░░░░░░░░░░░░     50.0         1.0 MiB
1               1  ████████████░░░░░░░░░░░░░░░░░░░░░░░░     33.3         1.0 MiB
  tenant (3)                   pid node    saved ▼    mapped   remote %     cost
> t10                           10    0    9.3 KiB         4       50.0     5000
  t11                           11    1    4.0 KiB         2      100.0        -
  t12                           12    1    2.7 KiB         1        0.0     9000








? help / filter sort s saved r remote c cost n name  q quit
";
        assert_eq!(screen(&state(), 80, 24), expected);
    }

    #[test]
    fn the_screen_at_60_by_20() {
        let expected = "\
nuksm on big: KSM is merging, every 2 s, Linux 6.12.0
saved  23.4 KiB net = 16.0 KiB + 8.0 KiB zero pages - 0.6 K…
ksmd   12.5 % of a CPU; saves 13.4 KiB per second of it
scan   300 pages/s, 12 full scans, one takes 0.2 s at least
saved, at most 23.4 KiB        scanned, at most 300 pages/s
██                              █
██                              █
██                              █
node merged pages  █ here ░ away      here %            free
0               2  ████████░░░░░░░░     50.0         1.0 MiB
1               1  █████░░░░░░░░░░░     33.3         1.0 MiB
  tenant (3)         pid node    saved ▼   remote %     cost
> t10                 10    0    9.3 KiB       50.0     5000
  t11                 11    1    4.0 KiB      100.0        -
  t12                 12    1    2.7 KiB        0.0     9000




? help / filter sort s saved r remote c cost n name  q quit
";
        assert_eq!(screen(&state(), 60, 20), expected);
    }

    #[test]
    fn with_an_engine_use_and_replicas_have_a_line() {
        let with = |seconds: u32, used: u64| {
            let mut look = look(seconds);
            let mut engine = crate::shared::sample::tests::engine();
            (engine.used_local, engine.used_remote) = (Some(9_000 + 3 * used), Some(1_000 + used));
            (look.sample.engine, look.sample.replica_bytes) = (Some(engine), Some(20 * 4096));
            Ok(look)
        };
        let mut state = State::new("big".into(), Duration::from_secs(2), false);
        state.add(with(0, 0));
        let line = |state: &State| screen(state, 80, 24).lines().nth(4).unwrap().to_owned();
        assert_eq!(line(&state), "used   - % locally; 20 replicas take 80.0 KiB");
        state.add(with(2, 10));
        assert_eq!(line(&state), "used   75.0 % locally; 20 replicas take 80.0 KiB");
        assert!(screen(&state, 80, 24).lines().nth(5).unwrap().starts_with("saved, at most"));
        assert!(screen(&state, 60, 20).contains("\nused   75.0 % locally; 20 replicas take 80.0 KiB\n"));
        state.add(with(4, 10));
        assert_eq!(line(&state), "used   - % locally; 20 replicas take 80.0 KiB", "no use, no zero");
        let mut plain = look(6);
        plain.sample.engine = Some(nuksm_ksmfs::Engine::default());
        state.add(Ok(plain));
        assert!(!screen(&state, 80, 24).contains("locally"), "a user who may not see it");
    }

    #[test]
    fn a_figure_too_long_for_its_column_is_no_smaller_one() {
        let mut state = state();
        let mut look = look(0);
        let row = &mut look.sample.tenants.as_mut().unwrap()[0];
        (row.saved_bytes, row.merged_mappings, row.tracked_pages) =
            (24_576 << 30, 9_876_543_210, Some(123_456_789));
        (row.pid, row.node) = (4_000_000_000, Some(123_456));
        look.sample.nodes.as_mut().unwrap()[0].merged_pages = u64::MAX;
        state.add(Ok(look));
        let text = screen(&state, 80, 24);
        assert!(text.contains("> t10                      400000… 123…   24.0 TiB  9876543k"), "{text}");
        assert!(text.contains("  123456k\n") && text.contains("0    18446744073G  █"), "{text}");
        let text = screen(&state, 50, 24);
        assert!(text.contains("one takes 0.2 s …\n"), "{text}");
        state.act(Action::Open);
        let text = screen(&state, 32, 24);
        assert!(text.contains("mapped  9876543210 merged pages…\n"), "{text}");
    }

    #[test]
    fn one_tenant_at_80_by_24() {
        let mut state = state();
        state.act(Action::Open);
        let expected = "\
nuksm on big: KSM is merging, every 2 s, Linux 6.12.0
saved  23.4 KiB net = 16.0 KiB + 8.0 KiB zero pages - 0.6 KiB records
ksmd   12.5 % of a CPU; saves 13.4 KiB per second of it
scan   300 pages/s, 12 full scans, one takes 0.2 s at least
t10: pid 10, node 0, nice 0
saves   9.3 KiB, its part of what its sharers save
mapped  4 merged pages: 2 local, 2 remote (50.0 %)
cost    5000 pages for ksmd to look at, 36 % of all, about 4.5 % of a CPU

shares with (2)                                      pid   node   pages together
t11                                                   11      1                2
t12                                                   12      1                1











Esc back  ↑↓ next tenant  q quit
";
        assert_eq!(screen(&state, 80, 24), expected);
    }

    #[test]
    fn a_wide_screen_has_longer_bars_and_the_same_words() {
        let (small, large) = (screen(&state(), 80, 24), screen(&state(), 120, 40));
        let bar = |screen: &str| screen.matches('█').count();
        assert!(bar(&large) > bar(&small) + 20, "{large}");
        for line in large.lines() {
            assert!(line.chars().count() <= 120, "{line}");
        }
        assert_eq!(large.lines().count(), 40);
        assert!(large.contains("  mapped   remote %"), "{large}");
    }

    #[test]
    fn the_order_is_marked_where_it_comes_from() {
        let mut state = state();
        for (sort, mark) in [
            (Sort::Savings, "saved ▼"),
            (Sort::Remote, "remote % ▼"),
            (Sort::Cost, "cost ▼"),
            (Sort::Name, "tenant (3) ▼"),
        ] {
            state.act(Action::Sort(sort));
            let text = screen(&state, 60, 20);
            assert!(text.contains(mark) && text.matches('▼').count() == 1, "{text}");
        }
    }

    #[test]
    fn help_filter_and_the_other_order_are_to_be_seen() {
        let mut state = state();
        state.act(Action::Reverse);
        let text = screen(&state, 60, 20);
        assert!(text.contains("saved ▲") && !text.contains('▼'), "{text}");
        for action in [Action::Filter, Action::Type('t'), Action::Type('1'), Action::Type('2')] {
            state.act(action);
        }
        let text = screen(&state, 60, 20);
        assert!(text.contains("filter: t12_") && text.contains("tenant (1/3)"), "{text}");
        state.act(Action::Keep);
        assert!(screen(&state, 60, 20).contains("filter: t12  / change"));
        state.act(Action::Help);
        let text = screen(&state, 60, 20);
        for words in ["R              the other way round", "q Ctrl-C       end", "Esc or ? back"] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn nothing_but_shapes_without_colour() {
        let drawn = |colour| {
            let mut state = state();
            state.colour = colour;
            state.add(Err(anyhow::anyhow!("gone")));
            let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
            terminal.draw(|frame| draw(frame, &state)).unwrap();
            terminal.backend().buffer().clone()
        };
        let (with, without) = (drawn(true), drawn(false));
        assert!(without.content().iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
        assert!(with.content().iter().any(|cell| cell.fg == Color::Yellow));
        let words = |buffer: &ratatui::buffer::Buffer| {
            buffer.content().iter().map(|cell| cell.symbol().to_owned()).collect::<String>()
        };
        assert_eq!(words(&with), words(&without));
        assert!(words(&without).contains("! gone: trying again"));
    }

    #[test]
    fn a_plain_user_sees_the_counters_and_why_no_more() {
        let mut state = State::new("big".into(), Duration::from_secs(2), false);
        assert!(screen(&state, 80, 24).starts_with("looking at all mergeable memory"));
        let mut look = look(0);
        (look.sample.nodes, look.sample.tenants) = (None, None);
        look.sample.notes = vec!["nodes and tenants are not shown: run as root".into()];
        state.add(Ok(look));
        let text = screen(&state, 80, 24);
        assert!(
            text.contains("23.4 KiB net") && text.contains("\nnodes and tenants are not shown"),
            "{text}"
        );
        assert!(!text.contains("free"), "{text}");
    }

    #[test]
    fn a_recording_says_what_it_lacks_and_never_zero() {
        let mut state = State::new(String::new(), Duration::from_secs(2), false);
        let mut recording = recording(&[&[1_764_000_000.0, 1_764_000_060.0]]);
        let mut with_tenants = look(0).sample;
        with_tenants.unix_time = 1_764_000_120.0;
        recording.runs[0].samples.push(with_tenants);
        recording.runs[0].samples[1].notes = vec!["nodes and tenants are not shown: run as root".into()];
        state.replay = Some(Replay::new(recording, None));
        let mut next = |actions: &[Action]| {
            state.act(Action::Next);
            assert_eq!(state.play(Instant::now()), Some(true));
            for action in actions {
                state.act(*action);
            }
            screen(&state, 80, 24)
        };
        let text = next(&[]);
        assert!(
            text.starts_with("recording of big,host, 2025-11-24 16:00:00 UTC, 1/3: KSM is merging"),
            "{text}"
        );
        assert!(
            text.contains("\nnodes and tenants are not in this recording: it was made with --counters"),
            "{text}"
        );
        assert!(text.contains("scan   - pages/s") && text.contains("at most - pages/s"), "{text}");
        assert!(text.contains("Space pause  → next sample"), "{text}");
        let text = next(&[Action::Pause]);
        assert!(
            text.contains("\nas it was recorded: nodes and tenants are not shown: run as root"),
            "{text}"
        );
        assert!(
            text.contains("2025-11-24 16:01:00 UTC, 2/3") && text.contains("paused: Space go on"),
            "{text}"
        );
        let text = next(&[Action::Open]);
        assert!(
            text.contains("t10: pid 10") && text.contains("\nwith whom it shares is in no recording"),
            "{text}"
        );
    }

    #[test]
    fn no_size_is_too_small_to_draw() {
        let mut state = state();
        for _ in 0..2 {
            for (width, height) in [(1, 1), (20, 5), (40, 3), (60, 8), (200, 2)] {
                screen(&state, width, height);
            }
            state.act(Action::Open);
        }
    }
}
