//! acp-gateway: an HTTP and SSE gateway that exposes ACP agents to web apps.
//!
//! `ARCHITECTURE.md` describes the structure. The modules below are in the order of the layers, lowest first.
//!
//! The layers are modules of one crate and not crates of a workspace. With crates, a change across a boundary would
//! change two manifests, make types public for one neighbour, and need traits to invert a dependency. A test compares
//! the imports with the table in `ARCHITECTURE.md`. It reads text, so it does not check code that macros of other
//! crates generate.

pub mod types;
pub mod shutdown;
pub mod telemetry;
pub mod outgoing;
pub mod config;
pub mod jsonrpc;
pub mod api;
pub mod event;
pub mod acp;
pub mod store;
pub mod process;
pub mod translate;
pub mod eventlog;
pub mod audit;
pub mod transcript;
pub mod projection;
pub mod fleet;
pub mod cca;
pub mod registry;
pub mod agent;
pub mod pool;
pub mod webhooks;
pub mod workspace;
pub mod session;
pub mod task;
pub mod conversation;
pub mod broadcast;
pub mod auth;
pub mod control;
pub mod stream;
pub mod server;
pub mod surface;
pub mod attach;
pub mod connect;
pub mod demo_agent;
pub mod app;
pub mod cli;
