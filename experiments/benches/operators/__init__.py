"""The operator models on the zoo: error on shapes and on whole networks that were held out of every fit.

`run` profiles and fits, `page` shows the errors.
"""
