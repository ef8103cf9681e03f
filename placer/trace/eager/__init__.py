"""Finds what a plain step does differently when it is traced than when TensorFlow runs it op by op (eagerly).

Two modules look at a finished trace: `ops` finds ops that do something else, and `number_use` finds numbers that must
not be tensors. The others watch a trace while it is made: `tensor_reads` watches code that reads what is not known
then, `branches` what a branch by a tensor changes, `type_questions` questions for the type of an argument, `gradients`
gradients that are None on some way through branches, `library_effects` what libraries keep of a trace,
`keras_functions` what Keras computes differently, and `array_changes` code that would change an array of the caller's.
`object_contents` records what the user's objects held before, to undo changes, and `patching` replaces attributes of
libraries for a while.
"""
