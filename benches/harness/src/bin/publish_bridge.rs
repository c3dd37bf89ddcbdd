//! `publish-bridge PORT AGENT SERVER lines|arrays`: runs agents for a server that accepts messages over HTTP.

fn main() -> harness::Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [port, agent, server, form] = &args[..] else {
        return Err("publish-bridge PORT AGENT SERVER lines|arrays".into());
    };
    harness::serve_bridge(port.parse()?, agent, server, form)
}
