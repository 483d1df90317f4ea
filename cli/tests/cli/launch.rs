//! `launch`, and runs of programs with collectives: real processes, connected as users have them.

use crate::folder::Folder;
use std::time::{Duration, Instant};

const SUM: &str = "func @f(%n: i32[], %x: f32[4]) -> f32[4] {
  %y = fori 0, %n, %x : f32[4] body(%i: i32[], %c: f32[4]) {
    %d = sin %c : f32[4]
    yield %d
  }
  %s = all_reduce %y {over = \"ranks\", ranks = 3} : f32[4]
  return %s
}
";

fn folder() -> Folder {
    let d = Folder::new();
    d.file("sum.ir", SUM);
    d
}

/// Each rank draws inputs of its own, and all print the same, which is what one process makes of all ranks.
#[cfg(unix)]
#[test]
fn ranks_give_what_one_process_gives_of_all() {
    let d = folder();
    for rank in 0..3 {
        d.file(&format!("x{rank}.ir"), "func @x(%x: f32[4]) -> f32[4] {\n  return %x\n}\n");
        d.good(&format!("run x{rank}.ir --seed {rank} --save x{rank}.npy"));
    }
    let run = "adfuse run sum.ir --input n=2 --input x=x$RANK.npy --digest";
    for engine in ["", "--engine evaluator"] {
        let ran = d.shell(&format!("adfuse launch -n 3 -- sh -c '{run} {engine}'"));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        let lines: Vec<&str> = ran.out.lines().collect();
        assert!(lines.len() == 3 && lines.iter().all(|line| *line == lines[0]), "{}", ran.out);
        // One process has all of them as a batch.
        let batched =
            d.good("vmap sum.ir --size 3 --axis-name ranks --in-axes x=0 --out-axes none");
        d.file("all.ir", batched);
        d.file(
            "stack.ir",
            "func @stack(%a: f32[4], %b: f32[4], %c: f32[4]) -> f32[3,4] {
  %0 = reshape %a : f32[1,4]
  %1 = reshape %b : f32[1,4]
  %2 = reshape %c : f32[1,4]
  %3 = concatenate %0, %1, %2 {axis = 0} : f32[3,4]
  return %3
}
",
        );
        d.good("run stack.ir --input a=x0.npy --input b=x1.npy --input c=x2.npy --save x.npy");
        let alone = d.good("run all.ir --input n=2 --input x=x.npy --digest");
        let digest = |line: &str| line.split_whitespace().last().map(str::to_string);
        assert_eq!(digest(lines[0]), digest(alone.trim()), "{} {alone}", lines[0]);
    }
}

/// A killed rank ends the others with an error of its class, and `launch` says who it was.
#[cfg(unix)]
#[test]
fn a_killed_rank_ends_the_others() {
    let d = folder();
    let begun = Instant::now();
    // Rank 1 is in a long loop when it is killed; the others wait for it.
    let run =
        "exec adfuse run sum.ir --engine cpu --input n=$((RANK % 2 * 2000000000)) --input x=ones";
    let killed = format!(
        "if [ $RANK = 1 ]; then {} & child=$!; sleep 2; kill -9 $child; wait $child; else {run}; fi",
        run.replace("exec ", "")
    );
    let ran = d.shell(&format!("adfuse launch -n 3 -- sh -c '{killed}'"));
    // Of the first that is seen to have failed: the killed one, or one that noticed.
    assert!(matches!(ran.code, 1 | 137), "{} {}{}", ran.code, ran.out, ran.err);
    assert!(ran.err.matches("error[lost-rank]").count() >= 2, "{}", ran.err);
    assert!(ran.err.contains("rank 1 is lost: its connection ended"), "{}", ran.err);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

/// A rank that ended before it joined is not waited for, whichever it is; one that never comes, not without an end.
#[cfg(unix)]
#[test]
fn a_rank_that_does_not_come_is_told() {
    let d = folder();
    for gone in [0, 2] {
        let run =
            format!("[ $RANK = {gone} ] || exec adfuse run sum.ir --input n=0 --input x=ones");
        let begun = Instant::now();
        let ran = d.shell(&format!("adfuse launch -n 3 -- sh -c '{run}'"));
        let says = format!("error[lost-rank]: rank {gone} is lost: it ended before it joined");
        assert!(ran.code == 1 && ran.err.contains(&says), "{} {}", ran.code, ran.err);
        assert_eq!(ran.err.matches("error[lost-rank]").count(), 2, "{}", ran.err);
        assert!(begun.elapsed() < Duration::from_secs(100), "{:?}", begun.elapsed());
    }
    let run = "[ $RANK = 2 ] || exec adfuse run sum.ir --input n=0 --input x=ones; sleep 5";
    let ran = d.shell(&format!("ADFUSE_RANKS_WAIT=1 adfuse launch -n 3 -- sh -c '{run}'"));
    assert!(
        ran.code == 1 && ran.err.contains("rank 2 did not come within 1 s"),
        "{} {}",
        ran.code,
        ran.err
    );
}

/// Whoever ends `launch` ends its ranks, and what these have started.
#[cfg(target_os = "linux")]
#[test]
fn ranks_end_with_launch() {
    let d = folder();
    for (signal, code) in [("TERM", 143), ("HUP", 129)] {
        // Each rank starts two processes, says which, and waits.
        let rank = "for k in 1 2; do sleep 300 >/dev/null 2>&1 & echo $! >> ids; done; wait";
        let line = format!(
            "adfuse launch -n 2 -- sh -c '{rank}' & launch=$!
             while [ \"$(cat ids 2>/dev/null | wc -l)\" -lt 4 ]; do sleep 0.05; done
             kill -{signal} $launch; wait $launch; echo code $?
             for id in $(cat ids); do grep -s State: /proc/$id/status | grep -qv Z && echo left $id; done; rm ids"
        );
        let ran = d.shell(&line);
        assert_eq!(ran.out.trim(), format!("code {code}"), "{signal}: {}", ran.err);
        assert!(ran.err.contains("launch was ended by signal"), "{}", ran.err);
    }
}

/// Ranks that do not end when they are asked to are ended when `launch` is asked again.
#[cfg(target_os = "linux")]
#[test]
fn a_second_signal_ends_ranks_at_once() {
    let d = folder();
    let rank = "trap : TERM; echo $$ >> ids; while :; do sleep 0.1; done";
    let line = format!(
        "adfuse launch -n 2 -- sh -c '{rank}' & launch=$!
         while [ \"$(cat ids 2>/dev/null | wc -l)\" -lt 2 ]; do sleep 0.05; done
         kill -TERM $launch; sleep 0.5; kill -TERM $launch; wait $launch; echo code $?
         for id in $(cat ids); do grep -s State: /proc/$id/status | grep -qv Z && echo left $id; done"
    );
    let begun = Instant::now();
    let ran = d.shell(&line);
    assert_eq!(ran.out.trim(), "code 143", "{}", ran.err);
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
}

/// All ranks run one command line, and none writes over another's file.
#[cfg(unix)]
#[test]
fn ranks_write_files_of_their_own() {
    let d = folder();
    let run = "adfuse run sum.ir --input n=0 --input x=ones";
    for flag in ["--save y.npz", "-o y.txt", "--trace t.json"] {
        let ran = d.shell(&format!("adfuse launch -n 3 -- {run} {flag}"));
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(
            ran.err.contains("all 3 ranks would write") && ran.err.contains("{rank}"),
            "{}",
            ran.err
        );
    }
    let ran =
        d.shell(&format!("adfuse launch -n 3 -- {run} --save y.{{rank}}.npz -o y.{{rank}}.txt"));
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "", ""));
    let names = ["sum.ir", "y.0.npz", "y.0.txt", "y.1.npz", "y.1.txt", "y.2.npz", "y.2.txt"];
    assert_eq!(d.names(), names);
}

/// A server that has lost a rank ends: nothing that it could answer is right any more.
#[cfg(unix)]
#[test]
fn a_server_ends_with_a_rank() {
    let d = folder();
    d.file("given.ir", "func @g(%n: i32[], %x: f32[4]) -> (i32[], f32[4]) {\n  return %n, %x\n}\n");
    d.good("run given.ir --input n=0 --input x=ones --save in.npz");
    // Rank 2 answers one request, the others would answer two.
    let serve = "count=2; [ $RANK = 2 ] && count=1; for k in $(seq $count); do printf \"in.npz\\tout$RANK.npz\\n\"; done \
                 | adfuse run sum.ir --serve";
    let ran = d.shell(&format!("adfuse launch -n 3 -- sh -c '{serve}'"));
    assert_eq!(ran.code, 1, "{} {}", ran.out, ran.err);
    assert_eq!(ran.out.lines().filter(|l| *l == "ok").count(), 3, "{}", ran.out);
    assert!(ran.err.matches("error[lost-rank]").count() >= 2, "{} {}", ran.out, ran.err);
}

#[test]
fn runs_without_ranks_say_what_to_do() {
    let d = folder();
    for engine in ["", "--engine reference"] {
        let ran = d.run(&format!("run sum.ir --input n=1 --input x=ones {engine}"));
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.err);
        assert!(
            ran.err.contains("error[no-device]") && ran.err.contains("adfuse vmap --axis-name"),
            "{}",
            ran.err
        );
    }
    let ran = d.with("WORLD_SIZE", "3", "run sum.ir --input n=1 --input x=ones");
    assert!(ran.code == 2 && ran.err.contains("RANK is not set"), "{}", ran.err);
}

#[test]
fn launch_says_what_it_cannot_do() {
    let d = folder();
    let ran = d.run("launch -n 2 -- ./no-such-program");
    assert!(ran.code == 2 && ran.err.contains("cannot run `./no-such-program`"), "{}", ran.err);
    assert_eq!(d.run("launch -n 0 -- true").code, 2);
    assert_eq!(d.run("launch -n 2").code, 2);
    let ran = d.run("launch -n 2 -o all.txt -- true");
    assert!(ran.code == 2 && ran.err.contains("after `--`"), "{}", ran.err);
    // The exit status is that of the first that fails.
    #[cfg(unix)]
    assert_eq!(d.shell("adfuse launch -n 2 -- sh -c 'exit $((RANK * 7))'").code, 7);
}

/// `bench` takes as many samples on all ranks, which rank 0 decides and prints; alone it is told that others are missing.
#[cfg(unix)]
#[test]
fn ranks_bench_together() {
    let d = folder();
    d.file(
        "two.ir",
        "func @two(%x: f32[4096], %y: f32[4096]) -> f32[4096] {
  %p = mul %x, %y : f32[4096]
  %s = all_reduce %p {over = \"ranks\", ranks = 2} : f32[4096]
  return %s
}
",
    );
    let bench = "adfuse bench two.ir --min-seconds 0.05 --kernels --compare off";
    let ran = d.shell(&format!("adfuse launch -n 2 -- {bench} --json"));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let report: serde_json::Value = serde_json::from_str(&ran.out).expect("one report");
    assert!(report.is_object(), "{report}");
    let alone = d.shell(bench);
    assert!(alone.code == 1 && alone.err.contains("this process is alone"), "{}", alone.err);
    assert!(alone.err.contains("two.ir:3:3"), "{}", alone.err);
    let written = d.shell(&format!("adfuse launch -n 2 -- {bench} --trace t.json"));
    assert!(written.err.contains("all 2 ranks would write"), "{}", written.err);
}
