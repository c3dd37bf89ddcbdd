//! `raw-epoll PORT AGENT`: the physical limit of the machine.

fn main() -> harness::Outcome {
    let mut args = std::env::args().skip(1);
    let (Some(port), Some(agent)) = (args.next(), args.next()) else {
        return Err("raw-epoll PORT AGENT".into());
    };
    harness::serve_limit(port.parse()?, agent)
}
