//! The isolation of children: what this machine supports, and what a child may access.
//!
//! The gateway decides here and writes a [`Confinement`]. The supervisor of the child applies it before the
//! program starts (`supervisor/namespaces.rs`, `supervisor/restrict.rs`).
//!
//! `Sandbox` describes this machine, and a `Confinement` describes one child. The `Confinement` reaches the supervisor
//! in an anonymous file, which no list of processes shows.
//!
//! A session folder that an agent can replace is opened without following links. Mounts and Landlock rules use this
//! descriptor, and not the path (`real_folder`).

mod confinement;
mod folders;
mod policy;
mod probe;
mod sandbox;
mod users;

pub(super) use confinement::{
    Access, AccessModel, Confinement, Readable, read_instructions, replaced_folders,
    shared_folders, shared_memory, temporary_folders, write_instructions,
};
pub use folders::FolderGrants;
pub(super) use folders::{GRANTED_LINE, GrantRequest, error_line};
pub use policy::{IsolationPolicy, UserRange, UserRangeError};
pub(super) use sandbox::TemporaryFolder;
pub use sandbox::{PACKAGE_FILE, Sandbox};
pub use users::{AgentUsers, UserError, UsersError, default_users};
pub(super) use users::{give, ids};
