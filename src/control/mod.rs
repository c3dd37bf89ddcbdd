//! The control socket: commands of the owner of the data folder ask the running gateway for a key and for folders.
//!
//! The socket is in the gateway's private folder. A connection needs the user of the gateway, and the token from a file
//! beside the socket. Isolation hides that file from agents. Some mechanisms leave sockets open to them.
//!
//! A request and a reply are one JSON object on one line (`message`). The key of a connection ends with the connection. The
//! module must not know sessions or surfaces.
//!
//! `socket` has the paths, `server` the gateway's side, `client` the side of a command. `folder_rules` decides which folders
//! can be granted.

mod client;
mod folder_rules;
mod message;
mod server;
mod socket;

pub use client::{ClientError, ControlClient};
pub use folder_rules::{FolderRejection, FolderRules};
pub use message::{Access, Secret, Welcome};
pub use server::{ControlClients, ControlServer};
pub use socket::BoundSocket;
