"""Which of several models takes a request?"""
