use adfuse::nn::Linear;
use adfuse::optim::Adam;
use adfuse::prelude::*;

#[derive(Params, Clone)]
struct Mlp<T = Tensor> {
    l1: Linear<T>,
    l2: Linear<T>,
}

impl Mlp {
    fn apply(&self, x: &Tensor) -> Tensor {
        self.l2.apply(self.l1.apply(x).gelu())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let table = data::read_arrays("examples/data/digits.csv.gz")?.remove(0).1; // f32[1797, 65]
    let (train, test) = data::Dataset::new(table)?.split_at(1500)?;
    let parts =
        |rows: Tensor| (rows.slice((.., ..64)) / 16.0, rows.slice((.., 64)).convert(DType::I32));

    let mlp = Mlp { l1: Linear::new(64, 128), l2: Linear::new(128, 10) };
    let step = adfuse::train_step(Adam::new(1e-3), mlp, move |net: &Mlp, rows: Tensor| {
        let (pixels, labels) = parts(rows);
        net.apply(&pixels).cross_entropy(&labels)
    });
    let accuracy = adfuse::eval_step(move |net: &Mlp, rows: Tensor| {
        let (pixels, labels) = parts(rows);
        net.apply(&pixels).argmax(-1).eq(&labels).convert(DType::F32).mean(..)
    });

    let mut state = step.init(Device::cpu(), 0)?; // parameters stay there from step to step
    for epoch in 0..20 {
        for rows in train.shuffled(1).epoch(epoch).batches(64) {
            let _loss = state.step(&rows)?;
        }
    }
    println!("{}", state.eval(&accuracy, &test.all())?.item::<f32>()?);
    state.save("mlp.safetensors")?;
    Ok(())
}
