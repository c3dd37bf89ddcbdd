//! The `acp-gateway` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    acp_gateway::cli::main()
}
