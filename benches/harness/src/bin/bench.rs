//! The driver behind `scripts/bench`.

fn main() -> std::process::ExitCode {
    harness::run_bench(std::env::args().skip(1))
}
