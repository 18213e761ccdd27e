// SPDX-License-Identifier: GPL-2.0-only
//! One tenant: what it saves and costs, and with whom it shares.

use super::state::State;
use super::style::{cut, number, right, strong};
use crate::shared::output::{bytes, known, percent};
use crate::shared::sample::TenantRow;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Row, Table};

/// Columns of those it shares with, besides the name.
const PID: u16 = 8;
const NODE: u16 = 6;
const PAGES: u16 = 16;

/// Draws the tenant with this pid.
pub fn draw(frame: &mut Frame, state: &State, pid: u32, area: Rect) {
    let tenants = state.tenants();
    let Some(tenant) = tenants.iter().find(|row| row.pid == pid) else {
        frame.render_widget(Line::from(format!("process {pid} has ended")), area);
        return;
    };
    let lines = facts(state, tenant, area.width);
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let [facts, partners] =
        Layout::vertical([Constraint::Length(height + 1), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Text::from(lines), facts);
    draw_partners(frame, state, pid, &tenants, partners);
}

fn facts(state: &State, tenant: &TenantRow, width: u16) -> Vec<Line<'static>> {
    let fit = |line| cut(line, width);
    let saved = bytes(i64::try_from(tenant.saved_bytes).unwrap_or(i64::MAX));
    let mut lines = vec![
        Line::styled(
            fit(format!(
                "{}: pid {}, node {}, nice {}",
                tenant.name,
                tenant.pid,
                known(tenant.node),
                tenant.nice
            )),
            strong(),
        ),
        Line::from(fit(format!("saves   {saved}, its part of what its sharers save"))),
        Line::from(fit(format!(
            "mapped  {} merged pages: {} local, {} remote ({} %)",
            tenant.merged_mappings,
            tenant.local_mappings,
            tenant.remote_mappings,
            percent(tenant.remote_mappings, tenant.merged_mappings)
        ))),
        Line::from(fit(cost(state, tenant))),
    ];
    if let Some((local, remote)) = tenant.ksm_merged_local.zip(tenant.ksm_merged_remote) {
        lines.push(Line::from(fit(format!(
            "engine  merged {local} pages where they were, {remote} elsewhere"
        ))));
    }
    lines
}

/// ksmd goes through the pages of all tenants in turn, so each tenant costs its
/// part of them.
fn cost(state: &State, tenant: &TenantRow) -> String {
    let Some(pages) = tenant.tracked_pages else {
        return "cost    unknown: this kernel does not say which pages ksmd looks at".into();
    };
    let all = state.tenants().iter().filter_map(|row| row.tracked_pages).fold(0, u64::saturating_add);
    let part = pages as f64 / all.max(1) as f64;
    let cpu = state.ksmd_share.map(|share| format!(", about {:.1} % of a CPU", share * part * 100.0));
    format!(
        "cost    {pages} pages for ksmd to look at, {:.0} % of all{}",
        part * 100.0,
        cpu.unwrap_or_default()
    )
}

/// With whom it shares, the most first, as many as fit.
fn draw_partners(frame: &mut Frame, state: &State, pid: u32, tenants: &[&TenantRow], area: Rect) {
    let Some(partners) = state.partners(pid) else {
        frame.render_widget(
            Line::from("with whom it shares is in no recording: `nuksm sharing` says it of now"),
            area,
        );
        return;
    };
    if partners.is_empty() {
        frame.render_widget(Line::from("shares with nobody else"), area);
        return;
    }
    let node = |pid: u32| tenants.iter().find(|row| row.pid == pid).and_then(|row| row.node);
    let rows = partners.iter().map(|(other, name, pages)| {
        Row::new([
            Cell::from((*name).to_owned()),
            right(other.to_string(), PID),
            right(known(node(*other)), NODE),
            right(number(*pages, PAGES), PAGES),
        ])
    });
    let widths =
        [Constraint::Fill(1), Constraint::Length(PID), Constraint::Length(NODE), Constraint::Length(PAGES)];
    let heading = format!("shares with ({})", partners.len());
    let heading = Row::new([
        Cell::from(heading),
        right("pid", PID),
        right("node", NODE),
        right("pages together", PAGES),
    ]);
    frame.render_widget(Table::new(rows, widths).header(heading.style(strong())), area);
}
