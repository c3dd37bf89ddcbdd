//! The reference ACP HTTP server, configured as in its documentation, for an agent on stdio.
//!
//! `acp-http-peer PORT AGENT`

use std::error::Error;
use std::net::Ipv4Addr;

use agent_client_protocol::{AcpAgent, AcpAgentConfig};
use agent_client_protocol_http::AcpHttpServer;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(port), Some(agent)) = (args.next(), args.next()) else {
        return Err("acp-http-peer PORT AGENT".into());
    };
    let server = AcpHttpServer::new(move || AcpAgent::new(AcpAgentConfig::new(agent.clone())));
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port.parse()?)).await?;
    axum::serve(listener, server.into_router()).await?;
    Ok(())
}
