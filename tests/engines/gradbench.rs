//! The tool of GradBench: every function of every module against plain loops with derivatives written by hand, and
//! what it answers to messages that are wrong.

#[path = "../../benches/gradbench/tool/mod.rs"]
mod tool;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde_json::{Value, json};

/// The answers to lines, one each.
fn answers(lines: &str) -> Vec<Value> {
    let mut out = Vec::new();
    tool::serve(lines.as_bytes(), &mut out).expect("reading and writing of memory");
    let text = String::from_utf8(out).expect("answers are text");
    text.lines().map(|line| serde_json::from_str(line).expect("an answer is JSON")).collect()
}

fn answer(message: &Value) -> Value {
    let [one] = answers(&format!("{message}\n")).try_into().expect("one answer");
    one
}

fn evaluate(module: &str, function: &str, input: &Value) -> Value {
    let message = json!({"id": 7, "kind": "evaluate", "module": module, "function": function, "input": input});
    answer(&message)
}

/// The numbers of an output, in order.
fn numbers(output: &Value) -> Vec<f64> {
    match output {
        Value::Array(all) => all.iter().flat_map(numbers).collect(),
        Value::Object(all) => all.values().flat_map(numbers).collect(),
        other => vec![other.as_f64().unwrap_or_else(|| panic!("no number: {other}"))],
    }
}

/// That a function gives these numbers, by their norm; and that it is timed.
#[track_caller]
fn agrees(module: &str, function: &str, input: &Value, due: &[f64]) {
    let got = evaluate(module, function, input);
    assert_eq!(got["success"], true, "{module}.{function}: {}", got["error"]);
    assert_eq!(got["id"], 7);
    let found = numbers(&got["output"]);
    assert_eq!(found.len(), due.len(), "{module}.{function}");
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    let off = norm(&mut found.iter().zip(due).map(|(a, b)| a - b));
    let size = norm(&mut due.iter().copied());
    assert!(off <= 1e-10 * size, "{module}.{function} is off by {off:e} of {size:e}, for {input}");
    let named = |name: &str| {
        let timings = got["timings"].as_array().expect("timings");
        timings.iter().filter(|t| t["name"] == name && t["nanoseconds"].is_u64()).count()
    };
    assert_eq!(named("compile"), 1);
    assert_eq!(named("evaluate") as u64, input["min_runs"].as_u64().unwrap_or(1));
}

fn drawn(rng: &mut ChaCha8Rng, n: usize) -> Vec<f64> {
    (0..n).map(|_| rng.random_range(-1.0..1.0)).collect()
}

fn matrix(rng: &mut ChaCha8Rng, rows: usize, width: usize) -> Vec<Vec<f64>> {
    (0..rows).map(|_| drawn(rng, width)).collect()
}

#[test]
fn hello() {
    for x in [0.0, 1.5, -3.0, 1e100] {
        agrees("hello", "square", &json!(x), &[x * x]);
        agrees("hello", "double", &json!(x), &[2.0 * x]);
    }
}

#[test]
fn lse() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for (n, spread) in [(1, 1.0), (2, 700.0), (33, 5.0), (5000, 30.0)] {
        let x: Vec<f64> = drawn(&mut rng, n).iter().map(|x| x * spread + 800.0).collect();
        let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = x.iter().map(|x| (x - most).exp()).sum();
        let input = json!({"x": x, "min_runs": 3, "min_seconds": 0});
        agrees("lse", "primal", &input, &[most + sum.ln()]);
        let due: Vec<f64> = x.iter().map(|x| (x - most).exp() / sum).collect();
        agrees("lse", "gradient", &input, &due);
    }
}

#[test]
fn llsq() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    // An odd n has a middle, where the sign is 0.
    for (m, n) in [(1, 2), (2, 5), (3, 17), (4, 64), (5, 101), (17, 1000), (128, 999)] {
        let x = drawn(&mut rng, m);
        let (mut y, mut due) = (0.0, vec![0.0; m]);
        for i in 0..n {
            let t = -1.0 + (2 * i) as f64 / (n - 1) as f64;
            let sign = if t == 0.0 { 0.0 } else { t.signum() };
            let r = sign - x.iter().rev().fold(0.0, |sum, c| sum * t + c);
            y += r * r / 2.0;
            let mut power = 1.0;
            for d in &mut due {
                *d -= r * power;
                power *= t;
            }
        }
        let input = json!({"x": x, "n": n, "min_runs": 2});
        agrees("llsq", "primal", &input, &[y]);
        agrees("llsq", "gradient", &input, &due);
    }
}

#[test]
fn kmeans() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    // Far from the origin |c|^2 - 2 c.p loses digits.
    for (n, k, d, away) in [(1, 1, 1, 3.0), (5, 2, 3, 3.0), (300, 7, 4, 1e6), (97, 13, 16, 1e8)] {
        let moved = |row: Vec<f64>| row.into_iter().map(|x| x + away).collect::<Vec<f64>>();
        let points: Vec<Vec<f64>> = matrix(&mut rng, n, d).into_iter().map(moved).collect();
        // Each centroid has a point that is at hand.
        let near =
            |p: &Vec<f64>| p.iter().zip(drawn(&mut rng, d)).map(|(p, e)| p + 1e-3 * e).collect();
        let centroids: Vec<Vec<f64>> = points[..k].iter().map(near).collect();
        let (mut cost, mut g, mut h) = (0.0, vec![vec![0.0; d]; k], vec![vec![0.0; d]; k]);
        for p in &points {
            let far = |c: &Vec<f64>| c.iter().zip(p).map(|(c, p)| (c - p) * (c - p)).sum::<f64>();
            let best = (0..k).min_by(|&a, &b| far(&centroids[a]).total_cmp(&far(&centroids[b])));
            let best = best.expect("a centroid");
            cost += far(&centroids[best]);
            for j in 0..d {
                g[best][j] += 2.0 * (centroids[best][j] - p[j]);
                h[best][j] += 2.0;
            }
        }
        let due: Vec<f64> =
            g.iter().flatten().zip(h.iter().flatten()).map(|(g, h)| g / h).collect();
        let input =
            json!({"points": points, "centroids": centroids, "min_runs": 1, "min_seconds": 0.0});
        agrees("kmeans", "cost", &input, &[cost]);
        agrees("kmeans", "dir", &input, &due);
    }
}

/// A mixture and points.
struct Mixture {
    d: usize,
    gamma: f64,
    m: usize,
    alpha: Vec<f64>,
    mu: Vec<Vec<f64>>,
    q: Vec<Vec<f64>>,
    l: Vec<Vec<f64>>,
    x: Vec<Vec<f64>>,
}

impl Mixture {
    fn drawn(
        rng: &mut ChaCha8Rng,
        (d, k, n): (usize, usize, usize),
        gamma: f64,
        m: usize,
    ) -> Mixture {
        let (mu, q) = (matrix(rng, k, d), matrix(rng, k, d));
        let (l, x) = (matrix(rng, k, d * (d - 1) / 2), matrix(rng, n, d));
        Mixture { d, gamma, m, alpha: drawn(rng, k), mu, q, l, x }
    }

    fn input(&self) -> Value {
        let (d, k, n) = (self.d, self.alpha.len(), self.x.len());
        json!({
            "d": d, "k": k, "n": n, "alpha": self.alpha, "mu": self.mu, "q": self.q, "l": self.l, "x": self.x,
            "gamma": self.gamma, "m": self.m, "min_runs": 1, "min_seconds": 0
        })
    }

    /// Where the number at row i and column j < i is.
    fn place(&self, i: usize, j: usize) -> usize {
        (0..j).map(|c| self.d - 1 - c).sum::<usize>() + i - j - 1
    }

    /// The value, and the gradients in the order alpha, mu, q, l.
    fn by_hand(&self) -> (f64, Vec<f64>) {
        let (d, k, n) = (self.d, self.alpha.len(), self.x.len());
        let pi = std::f64::consts::PI;
        let zeros = |rows: &[Vec<f64>]| rows.iter().map(|r| vec![0.0; r.len()]).collect::<Vec<_>>();
        let mut ga = vec![0.0; k];
        let (mut gmu, mut gq, mut gl) = (zeros(&self.mu), zeros(&self.q), zeros(&self.l));
        let mut value = -((n * d) as f64) / 2.0 * (2.0 * pi).ln();
        for x in &self.x {
            // For each component, x - mu, Q (x - mu), and its logarithm.
            let terms: Vec<(Vec<f64>, Vec<f64>, f64)> = (0..k)
                .map(|c| {
                    let u: Vec<f64> = x.iter().zip(&self.mu[c]).map(|(x, m)| x - m).collect();
                    let row = |i: usize| {
                        let below = (0..i).map(|j| self.l[c][self.place(i, j)] * u[j]).sum::<f64>();
                        self.q[c][i].exp() * u[i] + below
                    };
                    let z: Vec<f64> = (0..d).map(row).collect();
                    let far: f64 = z.iter().map(|z| z * z).sum();
                    let log = self.alpha[c] + self.q[c].iter().sum::<f64>() - far / 2.0;
                    (u, z, log)
                })
                .collect();
            let most = terms.iter().map(|t| t.2).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = terms.iter().map(|t| (t.2 - most).exp()).sum();
            value += most + sum.ln();
            for (c, (u, z, log)) in terms.iter().enumerate() {
                let share = (log - most).exp() / sum;
                ga[c] += share;
                for i in 0..d {
                    let e = self.q[c][i].exp();
                    gq[c][i] += share * (1.0 - z[i] * u[i] * e);
                    gmu[c][i] += share * z[i] * e;
                    for j in 0..i {
                        let p = self.place(i, j);
                        gmu[c][j] += share * z[i] * self.l[c][p];
                        gl[c][p] -= share * z[i] * u[j];
                    }
                }
            }
        }
        let most = self.alpha.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = self.alpha.iter().map(|a| (a - most).exp()).sum();
        value -= n as f64 * (most + sum.ln());
        for (g, a) in ga.iter_mut().zip(&self.alpha) {
            *g -= n as f64 * (a - most).exp() / sum;
        }
        let freedom = d + self.m + 1;
        // log gamma_d(N/2), of which each factor is gamma at a half of a whole number.
        let gamma_of_half = |h: usize| match h % 2 {
            0 => (1..h / 2).map(|j| (j as f64).ln()).sum::<f64>(),
            _ => (0..h / 2).map(|j| (j as f64 + 0.5).ln()).sum::<f64>() + pi.ln() / 2.0,
        };
        let log_gamma = (d * (d - 1)) as f64 / 4.0 * pi.ln()
            + (0..d).map(|j| gamma_of_half(freedom - j)).sum::<f64>();
        let scale = (freedom * d) as f64 * (self.gamma / 2f64.sqrt()).ln();
        value += k as f64 * (scale - log_gamma);
        let square = self.gamma * self.gamma;
        for c in 0..k {
            for (g, q) in gq[c].iter_mut().zip(&self.q[c]) {
                let e = q.exp();
                value += self.m as f64 * q - square / 2.0 * e * e;
                *g += self.m as f64 - square * e * e;
            }
            for (g, l) in gl[c].iter_mut().zip(&self.l[c]) {
                value -= square / 2.0 * l * l;
                *g -= square * l;
            }
        }
        let rest = [gmu, gq, gl].into_iter().flatten().flatten();
        (value, ga.into_iter().chain(rest).collect())
    }
}

#[test]
fn gmm() {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let cases = [
        ((1, 1, 1), 1.0, 0),
        ((1, 3, 5), 0.5, 2),
        ((2, 5, 20), 1.0, 0),
        ((5, 3, 33), 1.5, 3),
        ((16, 10, 50), 1.0, 0),
    ];
    for (sizes, gamma, m) in cases {
        let mixture = Mixture::drawn(&mut rng, sizes, gamma, m);
        let (value, gradient) = mixture.by_hand();
        agrees("gmm", "objective", &mixture.input(), &[value]);
        agrees("gmm", "jacobian", &mixture.input(), &gradient);
        if (gamma, m) == (1.0, 0) {
            // These are what they are where nothing is said of them.
            let mut short = mixture.input();
            let fields = short.as_object_mut().expect("an object");
            assert!(fields.remove("gamma").is_some() && fields.remove("m").is_some());
            agrees("gmm", "objective", &short, &[value]);
        }
        let got = evaluate("gmm", "jacobian", &mixture.input());
        let names: Vec<&String> = got["output"].as_object().expect("an object").keys().collect();
        assert_eq!(names, ["alpha", "mu", "q", "l"]);
        assert_eq!(got["output"]["l"].as_array().map(Vec::len), Some(sizes.1));
    }
}

#[test]
fn a_whole_exchange() {
    let lines = [
        json!({"id": 0, "kind": "start", "eval": "hello", "config": {"runs": 3}}),
        json!({"id": 1, "kind": "define", "module": "hello"}),
        json!({"id": 2, "kind": "evaluate", "module": "hello", "function": "square", "input": 3.0, "description": "3"}),
        json!({"id": 3, "kind": "analysis", "of": 2, "valid": true}),
        json!({"id": 4, "kind": "define", "module": "ode"}),
    ];
    let text: String = lines.iter().map(|l| format!("{l}\n")).collect();
    let got = answers(&text);
    assert_eq!(got.len(), lines.len());
    assert_eq!(got[0], json!({"id": 0, "tool": "adfuse", "config": {"runs": 3}}));
    assert_eq!((&got[1]["id"], &got[1]["success"]), (&json!(1), &json!(true)));
    assert_eq!(got[2]["output"], json!(9.0));
    assert_eq!(got[3], json!({"id": 3}));
    assert_eq!(got[4], json!({"id": 4, "success": false, "error": "no module `ode`"}));
}

#[test]
fn what_is_wrong_is_answered() {
    let lse = |input: Value| json!({"id": 1, "kind": "evaluate", "module": "lse", "function": "primal", "input": input});
    let of = |module: &str, function: &str, input: Value| json!({"id": 1, "kind": "evaluate", "module": module, "function": function, "input": input});
    let gmm = |key: &str, value: Value| {
        let mixture = Mixture::drawn(&mut ChaCha8Rng::seed_from_u64(5), (2, 2, 3), 1.0, 0);
        let mut input = mixture.input();
        input[key] = value;
        of("gmm", "jacobian", input)
    };
    let cases = [
        (json!([1, 2]), "the message is no object"),
        (json!({"id": 1}), "the message has no `kind`"),
        (json!({"id": 1, "kind": "stop"}), "no kind of message `stop`"),
        (json!({"id": 1, "kind": 3}), "`kind` is no string"),
        (
            json!({"id": 1, "kind": "evaluate", "module": "lse", "function": "primal"}),
            "the message has no `input`",
        ),
        (of("lse", "hessian", json!({"x": [1.0]})), "no function `hessian` in the module `lse`"),
        (of("ba", "objective", json!({})), "no module `ba`"),
        (of("hello", "square", json!("3")), "`input` is no number where one is due"),
        (
            of("hello", "square", json!(1e200)),
            "a result is not finite, for which JSON has no number",
        ),
        (lse(json!(3)), "the input is no object"),
        (lse(json!({"y": [1.0]})), "the input has no `x`"),
        (lse(json!({"x": []})), "`x` is empty"),
        (lse(json!({"x": [1.0, "a"]})), "`x` is no number where one is due"),
        (lse(json!({"x": [[1.0]]})), "`x` is no number where one is due"),
        (lse(json!({"x": [1.0], "min_runs": -1})), "`min_runs` is no whole number from 0 on"),
        (lse(json!({"x": [1.0], "min_runs": 1u64 << 40})), "`min_runs` is above 1048576"),
        (lse(json!({"x": [1.0], "min_seconds": 1e9})), "`min_seconds` is not from 0 to 3600"),
        (
            of("llsq", "primal", json!({"x": [1.0], "n": 1})),
            "`x` has at least one number, and `n` is at least 2",
        ),
        (
            of("llsq", "gradient", json!({"x": [1.0, 1.0], "n": 1u64 << 62})),
            "a tensor of extents [2, 4611686018427387904] is above 268435456 elements",
        ),
        (
            of("kmeans", "cost", json!({"points": [[1.0, 2.0], [3.0]], "centroids": [[1.0, 2.0]]})),
            "row 1 of `points` has 1 numbers, the first has 2",
        ),
        (
            of("kmeans", "dir", json!({"points": [[1.0, 2.0]], "centroids": [[1.0]]})),
            "points have 2 coordinates, centroids 1",
        ),
        (
            // No point is near the second.
            of("kmeans", "dir", json!({"points": [[1.0]], "centroids": [[1.0], [9.0]]})),
            "a result is not finite, for which JSON has no number",
        ),
        (gmm("alpha", json!([1.0])), "`alpha` has 1 numbers, not 2"),
        (gmm("l", json!([[1.0, 2.0], [1.0, 2.0]])), "`l` has 2 rows of 2 numbers, not 2 of 1"),
        (gmm("gamma", json!("1")), "`gamma` is no number where one is due"),
        (gmm("gamma", json!(0.0)), "`gamma` is above 0, `m` at most 1048576"),
        (gmm("n", json!(0)), "`d`, `k` and `n` are at least 1"),
        (
            gmm("d", json!(u64::MAX)),
            "a tensor of extents [3, 2, 18446744073709551615] is above 268435456 elements",
        ),
    ];
    for (message, due) in cases {
        let got = answer(&message);
        assert_eq!((&got["success"], &got["error"]), (&json!(false), &json!(due)), "{message}");
        assert_eq!(got["id"], message.get("id").cloned().unwrap_or_default(), "{message}");
    }
}

#[test]
fn lines_that_are_no_messages_are_answered_and_passed() {
    let got = answers("{\"id\": 1,\n\n\u{feff}x\n{\"id\": 2, \"kind\": \"analysis\"}");
    assert_eq!(got.len(), 3);
    for bad in &got[..2] {
        assert_eq!((&bad["id"], &bad["success"]), (&Value::Null, &json!(false)));
        assert!(bad["error"].as_str().is_some_and(|e| e.starts_with("no JSON: ")), "{bad}");
    }
    assert_eq!(got[2], json!({"id": 2}));
    let mut out = Vec::new();
    tool::serve(&b"\xff\xfe\n"[..], &mut out).expect("bytes that are no text are no end");
    assert!(out.starts_with(b"{\"id\":null,\"success\":false"));
}
