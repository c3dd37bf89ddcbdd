//! Installation of agents by their id in an ACP registry.
//!
//! An agent is installed into a folder of its version. The record in that folder is written last, so a folder without a
//! record is incomplete, and the next installation deletes it. Package managers run without install scripts unless the
//! operator allows them, and without the variables of the gateway.
//!
//! The module must not know the configuration or sessions.
//!
//! Reading order: [`index`] (the file of a registry, and the registry for the page), [`source`] (its content, and archives),
//! [`archive`], [`package`] (npm, Python and other programs), [`install`] (the steps, the record, and the first start),
//! [`installations`] (the order of an administrator over HTTP).
//!
//! Rules of the design:
//!
//! - An entry names the installed program. With `npx`, `uvx` or a registry id in the entry, each start needs the
//!   network, and the registry can change the code that runs.
//! - An installation runs new code on the gateway's machine. A key with the scope `admin` can order one only if the operator
//!   configures `registry.source`, or if the gateway is for its operator alone ([`Config::is_personal`]).
//! - The operator configures each host that the gateway contacts. Without `registry.source`, the gateway contacts the registry of
//!   the ACP project only for a request that names it.
//!
//! [`Config::is_personal`]: crate::config::Config::is_personal

mod archive;
mod index;
mod install;
mod installations;
mod package;
mod source;

pub use self::index::{Entry, Index, IndexError, Kind, Listing, ListingError};
pub use self::install::{
    Answer, InstallError, Installed, Installer, Record, Request, Step, VerifyError, installed,
    verify,
};
pub use self::installations::{
    Added, FoundAgent, Installations, Order, OrderError, Outcome, Permissions,
};
pub use self::package::Programs;
pub use self::source::{DEFAULT_SOURCE, Source, SourceError};
