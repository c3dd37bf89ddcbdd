//! Installation of agents by their id in an ACP registry.
//!
//! An agent is installed into a folder of its version. The record in that folder is written last, so a folder without a
//! record is incomplete, and the next installation deletes it. Package managers run without install scripts unless the
//! operator allows them, and without the variables of the gateway.
//!
//! The module must not know the configuration or sessions.
//!
//! Reading order: [`index`] (the file of a registry), [`source`] (its content, and archives), [`archive`], [`package`] and
//! [`program`] (npm, Python and other programs), [`record`], [`install`] (the steps), [`verify`] (the first start), [`listing`] (the registry for the page).
//!
//! Rules of the design:
//!
//! - An entry names the installed program. With `npx`, `uvx` or a registry id in the entry, each start needs the
//!   network, and the registry can change the code that runs.
//! - HTTP clients cannot install an agent. With a route for installation, a key can run new code on the gateway's
//!   machine.
//! - The page lists a registry only if `registry.source` is set, because the operator configures each host that the
//!   gateway contacts.

mod archive;
mod index;
mod install;
mod listing;
mod package;
mod program;
mod record;
mod source;
mod verify;

pub use index::{Entry, Index, IndexError, Kind};
pub use install::{InstallError, Installed, Installer, Request};
pub use listing::{Listing, ListingError};
pub use program::Programs;
pub use record::{Record, installed};
pub use source::{DEFAULT_SOURCE, Source, SourceError};
pub use verify::{Answer, VerifyError, verify};
