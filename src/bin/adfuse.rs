//! The command-line program.

fn main() -> std::process::ExitCode {
    adfuse::cli::main()
}
