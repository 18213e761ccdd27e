// SPDX-License-Identifier: GPL-2.0-only
//! How words and figures look.

use ratatui::style::{Modifier, Style};
use ratatui::text::Text;
use ratatui::widgets::Cell;

/// Bold, on a terminal of any kind.
pub fn strong() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// A cell with a number.
pub fn right(text: impl Into<String>) -> Cell<'static> {
    Cell::from(Text::from(text.into()).right_aligned())
}
