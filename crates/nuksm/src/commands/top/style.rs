// SPDX-License-Identifier: GPL-2.0-only
//! How words and figures look.

use ratatui::style::{Modifier, Style};
use ratatui::text::{Span, Text};
use ratatui::widgets::Cell;

/// Bold, on a terminal of any kind.
pub fn strong() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// A cell at the right of a column of this width. What is too long ends in an
/// ellipsis: without its first figures a number would be another one.
pub fn right(text: impl Into<String>, width: u16) -> Cell<'static> {
    Cell::from(Text::from(cut(text.into(), width)).right_aligned())
}

/// The text, or as much of it as fits into one line of this width, with an ellipsis.
pub fn cut(text: String, width: u16) -> String {
    let columns = |text: &str| Span::raw(text).width();
    if columns(&text) <= width.into() {
        return text;
    }
    // The last column is for the ellipsis.
    let mut left = usize::from(width).saturating_sub(1);
    let fits = |char: &char| {
        let taken = left.checked_sub(columns(&char.to_string()));
        left = taken.unwrap_or(0);
        taken.is_some()
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

/// A number in so many columns: in thousands, millions and so on where it needs more.
pub fn number(value: u64, width: u16) -> String {
    let units = ["", "k", "M", "G", "T", "P", "E"];
    let mut texts =
        (0_u32..).zip(units).map(|(power, unit)| format!("{}{unit}", value / 1_000_u64.pow(power)));
    texts.find(|text| text.len() <= width.into()).unwrap_or_else(|| "…".into())
}
