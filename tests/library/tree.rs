//! Trees: the order and the paths of leaves, what derives give, other leaves in place of some.

use adfuse::tree::{self, Leaf, Params};

#[derive(Clone, Debug, PartialEq)]
struct Name(String);
impl Leaf for Name {}

#[derive(Clone, Debug, PartialEq)]
struct Length(usize);
impl Leaf for Length {}

#[derive(Params, Clone, Debug, PartialEq)]
struct Pair<T> {
    left: T,
    right: Option<T>,
    scale: f64,
}

#[derive(Params, Clone, Debug, PartialEq)]
struct Wrapper<T>(Pair<T>);

#[derive(Params, Clone, Debug, PartialEq)]
enum Choice<T> {
    Nothing,
    One(T),
    Two(T, Vec<T>),
    Named { r#type: T, size: usize },
}

#[derive(Params, Clone, Debug, PartialEq)]
struct Model<T, const N: usize, S: Clone> {
    pairs: Vec<Pair<T>>,
    wrapped: Wrapper<T>,
    choices: [Choice<T>; N],
    both: (T, Pair<T>),
    setting: S,
}

fn name(s: &str) -> Name {
    Name(s.into())
}

fn pair(s: &str, two: bool) -> Pair<Name> {
    Pair { left: name(s), right: two.then(|| name(&format!("{s}'"))), scale: 0.5 }
}

fn model() -> Model<Name, 4, String> {
    Model {
        pairs: vec![pair("a", true), pair("b", false)],
        wrapped: Wrapper(pair("c", false)),
        choices: [
            Choice::Nothing,
            Choice::One(name("d")),
            Choice::Two(name("e"), vec![name("f"), name("g")]),
            Choice::Named { r#type: name("h"), size: 3 },
        ],
        both: (name("i"), pair("j", false)),
        setting: "set".into(),
    }
}

const PATHS: &[(&str, &str)] = &[
    ("pairs.0.left", "a"),
    ("pairs.0.right", "a'"),
    ("pairs.1.left", "b"),
    ("wrapped.left", "c"),
    ("choices.1", "d"),
    ("choices.2.0", "e"),
    ("choices.2.1.0", "f"),
    ("choices.2.1.1", "g"),
    ("choices.3.type", "h"),
    ("both.0", "i"),
    ("both.1.left", "j"),
];

#[test]
fn paths_are_the_names_of_fields() {
    let named = tree::named_leaves(&model());
    let found: Vec<(&str, &str)> = named.iter().map(|(p, n)| (p.as_str(), n.0.as_str())).collect();
    assert_eq!(found, PATHS);
    assert_eq!(tree::count(&model()), PATHS.len());
}

#[test]
fn a_map_there_and_back_is_the_same() {
    let lengths = tree::map(&model(), |_, n: &Name| Length(n.0.len()));
    assert_eq!(lengths.pairs[0].right, Some(Length(2)));
    assert_eq!(lengths.setting, "set");
    let mut names = PATHS.iter();
    let back = tree::map(&lengths, |_, _| name(names.next().expect("as many").1));
    assert_eq!(back, model());
}

#[test]
fn leaves_are_replaced_in_their_order() {
    let upper = tree::replace(&model(), |path, n: &Name| name(&format!("{path}={}", n.0)));
    assert_eq!(upper.both.1.left, name("both.1.left=j"));
    let some = tree::rebuild(&model(), [name("x"), name("y")]);
    assert_eq!(
        (some.pairs[0].clone(), some.pairs[1].clone()),
        (Pair { left: name("x"), right: Some(name("y")), scale: 0.5 }, pair("b", false))
    );
}

#[test]
fn a_map_ends_with_the_first_error() {
    let mut asked = 0;
    let failed = tree::try_map(&model(), |path, n: &Name| {
        asked += 1;
        if path.as_str() == "wrapped.left" { Err(path.to_string()) } else { Ok(n.clone()) }
    });
    assert_eq!((failed, asked), (Err("wrapped.left".to_string()), 4));
    let whole = tree::try_map(&model(), |_, n: &Name| Ok::<_, ()>(n.clone()));
    assert_eq!(whole, Ok(model()));
}
