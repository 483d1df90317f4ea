//! Data sets: rows that stay together, orders that a seed and an epoch decide, and batches that a thread makes.

use adfuse::backends::Array;
use adfuse::data::{Dataset, prefetch};
use adfuse::ir::Kind;
use adfuse::tree::Params;
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[derive(Params)]
struct Example<T> {
    image: T,
    labels: (T, Option<T>),
    classes: usize,
}

/// Examples whose every element says which row it is of.
fn examples(n: u64) -> Dataset<Example<Array>> {
    let image = (0..n * 6).map(|k| (k / 6) as f32).collect();
    let image = Array::from_vec(image, [n, 2, 3]).expect("as many");
    let label = Array::from((0..n as i64).collect::<Vec<_>>());
    let weight = Array::from((0..n).map(|k| k as u8).collect::<Vec<_>>());
    let arrays = Example { image, labels: (label, Some(weight)), classes: 10 };
    Dataset::new(arrays).unwrap_or_else(|d| panic!("{d}"))
}

/// The rows of a batch, which all of its arrays have.
fn rows(batch: &Example<Array>) -> Vec<u64> {
    assert_eq!(batch.classes, 10);
    let labels = batch.labels.0.to_vec::<i64>().expect("i64");
    let images = batch.image.as_slice::<f32>().expect("f32");
    assert_eq!(batch.image.dims(), [labels.len() as u64, 2, 3]);
    for (k, label) in labels.iter().enumerate() {
        assert!(images[k * 6..][..6].iter().all(|x| *x == *label as f32));
    }
    let weights = batch.labels.1.as_ref().expect("there").as_slice::<u8>().expect("u8");
    assert!(weights.iter().zip(&labels).all(|(w, l)| i64::from(*w) == l % 256));
    labels.into_iter().map(|l| l as u64).collect()
}

fn order(data: &Dataset<Example<Array>>) -> Vec<u64> {
    data.batches(7).flat_map(|batch| rows(&batch)).collect()
}

#[test]
fn batches_have_all_rows_once_in_a_decided_order() {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let sizes = (0..200u64, 1..40usize, any::<u64>(), 0..5u64, 0..200u64);
    let tried = runner.run(&sizes, |(n, size, seed, epoch, at)| {
        let data = examples(n);
        let shuffled = data.shuffled(seed).epoch(epoch);
        let batches: Vec<Vec<u64>> = shuffled.batches(size).map(|b| rows(&b)).collect();
        prop_assert_eq!(batches.len(), n.div_ceil(size as u64) as usize);
        prop_assert_eq!(shuffled.batches(size).len(), batches.len());
        for batch in batches.iter().rev().skip(1) {
            prop_assert_eq!(batch.len(), size);
        }
        let whole: Vec<Vec<u64>> = shuffled.batches(size).drop_last().map(|b| rows(&b)).collect();
        prop_assert_eq!(whole.len(), n as usize / size);
        prop_assert!(whole.iter().eq(batches.iter().filter(|b| b.len() == size)));
        let found: Vec<u64> = batches.concat();
        prop_assert_eq!(&found, &order(&data.epoch(epoch).shuffled(seed)));
        prop_assert_eq!(&found, &rows(&shuffled.all()));
        let ahead: Vec<u64> = shuffled.batches(size).prefetch().flat_map(|b| rows(&b)).collect();
        prop_assert_eq!(&found, &ahead);
        let mut sorted = found.clone();
        sorted.sort_unstable();
        prop_assert!(sorted.into_iter().eq(0..n));
        prop_assert!(order(&data.epoch(epoch)).into_iter().eq(0..n));
        // The parts of a shuffled set are its order, cut.
        match shuffled.split_at(at as usize) {
            Ok((first, rest)) => {
                prop_assert_eq!((first.len(), rest.len()), (at as usize, (n - at) as usize));
                prop_assert_eq!([order(&first), order(&rest)].concat(), found);
                let mut again = order(&rest.shuffled(seed));
                let mut due = order(&rest);
                again.sort_unstable();
                due.sort_unstable();
                prop_assert_eq!(again, due);
            }
            Err(d) => prop_assert!(at > n && d.kind == Kind::Usage, "{}", d),
        }
        Ok(())
    });
    tried.unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn orders_differ_by_seed_and_epoch_and_are_the_same_on_every_host() {
    let data = examples(100);
    let orders =
        [(1, 0), (1, 1), (2, 0)].map(|(seed, epoch)| order(&data.shuffled(seed).epoch(epoch)));
    assert!(orders[0] != orders[1] && orders[0] != orders[2] && orders[1] != orders[2]);
    let few = order(&examples(8).shuffled(3));
    assert_eq!(few, RECORDED, "the order of seed 3");
}

/// The order of eight examples by seed 3 in epoch 0.
const RECORDED: [u64; 8] = [2, 7, 0, 4, 6, 5, 3, 1];

#[test]
fn trees_that_are_no_data_sets_are_refused() {
    let (three, four) = (Array::from([1.0f32; 3]), Array::from([1i64; 4]));
    let d = Dataset::new((three.clone(), four)).expect_err("3 and 4");
    assert_eq!((d.kind, d.message.as_str()), (Kind::Shape, "`1` has 4 rows, `0` has 3"));
    let d = Dataset::new(vec![three, Array::from(1.0f32)]).expect_err("a scalar");
    assert_eq!(d.message, "`1` is f32[], which has no rows");
    let d = Dataset::new(Array::from(1.0f32)).expect_err("a scalar");
    assert_eq!(d.message, "the array is f32[], which has no rows");
    let d = Dataset::new(Vec::<Array>::new()).expect_err("nothing");
    assert_eq!(d.kind, Kind::Usage);
    assert!(catch_unwind(|| examples(3).batches(0)).is_err());
}

#[test]
fn threads_end_early_and_their_panics_surface() {
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let mut ahead =
        prefetch((0..1_000_000).inspect(move |_| _ = count.fetch_add(1, Ordering::SeqCst)));
    assert_eq!((ahead.next(), ahead.next()), (Some(0), Some(1)));
    std::thread::sleep(Duration::from_millis(20));
    // Two that wait, and one that is being made.
    let before = made.load(Ordering::SeqCst);
    assert!(before <= 5, "{before} items are ahead");
    // The thread is gone when this is done, and so is what it held.
    drop(ahead);
    assert_eq!(Arc::strong_count(&made), 1);
    let mut broken = prefetch((0..10).map(|k| if k == 3 { panic!("row {k} is bad") } else { k }));
    assert!(broken.by_ref().take(3).eq(0..3));
    let panic =
        catch_unwind(AssertUnwindSafe(|| broken.next())).expect_err("the panic of the thread");
    assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some("row 3 is bad"));
    assert_eq!(broken.next(), None);
    let mut few = prefetch([1, 2]);
    assert_eq!((few.next(), few.next(), few.next(), few.next()), (Some(1), Some(2), None, None));
    drop(examples(1000).batches(1).prefetch());
}
