// SPDX-License-Identifier: GPL-2.0-only
//! The commands, a module each: its arguments, which are its manual, and what it
//! does with them. No command knows of another; what they share is in `shared`.

pub mod doctor;
pub mod domain;
pub mod engine;
pub mod estimate;
pub mod exec;
pub mod generate;
pub mod place;
pub mod record;
pub mod report;
pub mod serve;
pub mod sharing;
pub mod status;
pub mod top;
pub mod tune;
pub mod unmerge;
