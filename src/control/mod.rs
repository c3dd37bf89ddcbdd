//! The control socket: commands of the owner of the data folder ask the running gateway for a key, for folders, and for the import
//! of a session.
//!
//! The socket is in the gateway's private folder. A connection needs the user of the gateway, and the token from a file
//! beside the socket. Isolation hides that file from agents. Some mechanisms leave sockets open to them, and an editor that
//! serves files can disclose the token. Therefore, the server rejects processes that descend from the gateway: agents and
//! their commands.
//!
//! A request and a reply are one JSON object on one line (`message`). The key of a connection ends with the connection. The
//! module must not know sessions or surfaces.
//!
//! `socket` has the files, the messages and the side of a command, `server` the gateway's side: it bounds the connections,
//! and ends keys with them. `folder_rules` decides which folders can be granted.
//!
//! Rejected alternatives:
//!
//! - Keys that a command writes to the store: the gateway accepts them after its next reload, and a killed command
//!   leaves its key.
//! - All traffic over this socket: the API would need a second listener with its own limits, and the page needs TCP
//!   anyway.
//! - A key that can open any folder: a leaked key would open the whole home folder.

mod folder_rules;
mod server;
mod socket;

pub use folder_rules::{FolderRejection, FolderRules};
pub use server::{ControlClients, ControlServer, Import};
pub use socket::{Access, BoundSocket, ClientError, ControlClient, Secret, Welcome};
