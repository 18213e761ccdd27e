// SPDX-License-Identifier: GPL-2.0-only
//! Who maps which merged page (`/proc/PID/smaps`, `/proc/PID/pagemap`,
//! `/proc/kpageflags`), moving pages to other nodes (`move_pages(2)`), and
//! un-merging them.

mod areas;
mod entries;
mod error;
mod flags;
mod idle;
mod mover;
mod page_size;
mod present;
mod scan;
mod twins;
mod unshare;

pub use areas::{Area, anonymous_areas, mergeable_areas};
pub use entries::{Entry, Pagemap};
pub use error::{Error, Result};
pub use flags::KpageFlags;
pub use idle::{FRAMES as IDLE_FRAMES, IdlePages};
pub use mover::{Outcome, Refusal, move_to_node, nodes_of};
pub use page_size::page_size;
pub use scan::{Mapping, Scan};
pub use twins::first_of_memory;
pub use unshare::{prefer_nodes, unshare};
