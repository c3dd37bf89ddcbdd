//! The control socket: commands of the owner of the data folder ask the running gateway for a key and for folders.
//!
//! The socket is in the gateway's private folder. A connection needs the user of the gateway, and the token from a file
//! beside the socket. Isolation hides that file from agents. Some mechanisms leave sockets open to them, and an editor that
//! serves files can disclose the token. Therefore, the server rejects processes that descend from the gateway: agents and
//! their commands.
//!
//! A request and a reply are one JSON object on one line (`message`). The key of a connection ends with the connection. The
//! module must not know sessions or surfaces.
//!
//! `socket` has the paths, `server` the gateway's side, `client` the side of a command. `clients` bounds the connections, and
//! `holders` ends keys with them. `folder_rules` decides which folders
//! can be granted.
//!
//! Rejected alternatives:
//!
//! - Keys that a command writes to the store: the gateway accepts them after its next reload, and a killed command
//!   leaves its key.
//! - All traffic over this socket: the API would need a second listener with its own limits, and the page needs TCP
//!   anyway.
//! - A key that can open any folder: a leaked key would open the whole home folder.

mod client;
mod clients;
mod folder_rules;
mod holders;
mod message;
mod server;
mod socket;

pub use client::{ClientError, ControlClient};
pub use clients::ControlClients;
pub use folder_rules::{FolderRejection, FolderRules};
pub use message::{Access, Secret, Welcome};
pub use server::ControlServer;
pub use socket::BoundSocket;
