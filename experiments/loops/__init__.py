"""Small but real training loops, as public tutorials show them, to be run wrapped and alone.

| loop                  | shows                                                                     |
| --------------------- | ------------------------------------------------------------------------- |
| `scratch`             | metrics updated in the step, a learning rate set from Python              |
| `plain`               | a step without tf.function                                                |
| `accumulation`        | gradients added up in variables, applied every third step                 |
| `mixed_precision`     | float16 layers and a loss that is scaled                                  |
| `stateful_rnn`        | state in variables, reset between epochs                                  |
| `averages_by_hand`    | tf.train.ExponentialMovingAverage                                         |
| `distillation`        | a frozen teacher                                                          |
| `partial_batch`       | a smaller last batch                                                      |
| `first_batch`         | a first call of another shape                                             |
| `schedule`            | a learning rate given to each call as a float                             |
| `evaluating_thread`   | another thread evaluates all the time                                     |
| `sharpness_aware`     | weights moved and moved back within a step                                |
| `lookahead`           | a branch that changes weights every few steps                             |
| `gradient_penalty`    | a gradient in the loss, clipped weights, two steps in turn                |
| `target_network`      | eager calls between steps, a second network that follows                  |
| `gan`                 | two steps on shared variables, with noise that no seed repeats            |
| `generator_gan`       | the same with noise from a tf.random.Generator                            |
| `seeded_gan`          | the same with tf.random.set_seed                                          |
| `vae`                 | keras.Model with a train_step of its own, under `fit`                     |
| `two_outputs`         | dict inputs, two outputs, validation, checkpoints, early stopping         |
| `steps_per_execution` | four steps for each call of Keras                                         |
| `averages`            | use_ema of a Keras optimizer                                              |
| `summary`             | a step that writes a summary                                              |
| `python_function`     | a step with tf.py_function                                                |
| `python_state`        | a step in plain Python with a counter and a rate in a list                |
| `hard_examples`       | a data set whose generator looks at the weights                           |

Read `catalogue`, then the loops themselves (`by_hand`, `papers`, `gan`, `fits`, `effects`; `data` has their batches),
then how they are run: `run`, with `moved` and `fit_callbacks`, and `outcome`, which compares two runs. `judge` does all
of it, for use in a separate process. Importing this package does not import TensorFlow.
"""
