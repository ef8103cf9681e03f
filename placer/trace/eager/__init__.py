"""What a step does where TensorFlow runs it op by op, as it runs plain Python, and does otherwise once it is traced.

`ops` finds ops that do something else, and `number_use` numbers that must not be tensors, both in a finished trace. The
others watch one: `tensor_reads` code that reads what is not known then, `branches` what a branch by a tensor changes,
`places` what the user's objects held before, to undo that, `type_questions` those for the type of an argument,
`gradients` those that are None on some way through branches, `lasting` what libraries keep of a trace,
`keras_functions` what Keras computes otherwise, `array_changes` what would change an array of the caller's. `replacing`
lends them attributes of libraries for a while.
"""
