// SPDX-License-Identifier: GPL-2.0-only
//! What the keys do.

use super::style::strong;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

const KEYS: [(&str, &str); 12] = [
    ("↑ ↓ PgUp PgDn", "select a tenant"),
    ("Enter", "show it, and with whom it shares"),
    ("s", "sort by what it saves"),
    ("r", "by the part of its mappings that is remote"),
    ("c", "by its cost: pages that ksmd looks at for it"),
    ("n", "by name"),
    ("R", "the other way round"),
    ("/", "show only names with what follows, or one pid"),
    ("Space", "stop a recording, or have it go on"),
    ("→", "its next sample, at once"),
    ("Esc", "close what is open, drop the filter, or end"),
    ("q Ctrl-C", "end"),
];

/// Draws the list.
pub fn draw(frame: &mut Frame, area: Rect) {
    let line = |(keys, what): &(&str, &str)| {
        Line::from(vec![Span::styled(format!("  {keys:<15}"), strong()), Span::raw((*what).to_owned())])
    };
    let lines: Vec<Line> = KEYS.iter().map(line).collect();
    frame.render_widget(Paragraph::new(lines), area);
}
