// SPDX-License-Identifier: GPL-2.0-only
//! What several commands need. Nothing here knows of a command.

pub mod config;
pub mod cost;
pub mod domains;
pub mod load;
pub mod lock;
pub mod logging;
pub mod memcg;
pub mod options;
pub mod output;
pub mod pace;
pub mod pairs;
pub mod placing;
pub mod privilege;
pub mod recording;
pub mod replace;
pub mod sample;
pub mod stop;
pub mod tenants;
#[cfg(test)]
pub mod tree;
pub mod tuning;
pub mod view;
pub mod who;
pub mod yama;
