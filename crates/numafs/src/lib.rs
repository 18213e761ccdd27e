// SPDX-License-Identifier: GPL-2.0-only
//! The machine's nodes (CPUs, distances, memory) and the node a task runs on.

mod cpulist;
mod memory;
mod policy;
mod task;
mod topology;

pub use cpulist::CpuList;
pub use memory::Memory;
pub use policy::Policies;
pub use task::{TICKS_PER_SECOND, TaskStat, home_node};
pub use topology::{Node, Topology, ZoneSpan};
