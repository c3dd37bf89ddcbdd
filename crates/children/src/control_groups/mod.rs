//! Control groups (cgroup2) of children: limits for a process with all its descendants, and an end that no descendant can
//! avoid.
//!
//! ```text
//! GROUP                     the group in which the gateway was started
//! └── acp-gateway-ID        the groups of one gateway process
//!     ├── gateway           the gateway and its supervisors, if controllers require it
//!     └── NUMBER            one child, with its limits
//!         └── program       the processes of the child
//! ```
//!
//! The supervisor of a child stays outside of the child's group, so it reports how the child ended. The last stage before
//! the program enters `program` through a descriptor that the gateway opened. A process that creates its own namespace
//! of control groups sees only `program`, and not the limits above it.
//!
//! The kernel permits controllers (`pids`, `memory`) below a group only if the group itself has no processes. Therefore
//! the gateway moves itself to a group of its own. Without controllers the groups have no limits.
//!
//! The reaper of a child kills and removes its group after the end of the supervisor. This also ends descendants of a
//! killed supervisor. A record names the groups, so that the next start ends leftover processes before it binds the
//! port.
//!
//! In namespaces, mounts of control groups are read-only. Landlock makes `/sys` read-only.
//!
//! Reading order: [`group`], [`groups`].

mod group;
mod groups;

pub(super) use group::ChildGroup;
pub use groups::ControlGroups;
pub use groups::sweep as sweep_groups;
